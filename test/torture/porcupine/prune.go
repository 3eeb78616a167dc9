// Shortens the search for orders. Each operation with an unknown outcome doubles the possibilities
// from its call to the end of the history. Most of them can be left out, or end early, and the
// verdict stays the same:
//
//   - An effect that nobody can notice is left out. If an order with this effect exists, the same
//     order without it is right, too: no operation between it and the next write depends on it. And
//     an order without the effect needs no proof, because an unknown operation may never happen.
//   - An effect ends with the return of an operation that shows a higher token. Tokens in a store
//     never go back, so the effect is impossible after that operation.
//   - An effect is certain if a result shows it, and no other operation can explain that result. It
//     comes before the return of the operation with that result.
package main

import "math"

const never = math.MaxInt64

// An operation, and the time by which it has taken effect or never will.
type bounded struct {
	operation
	end int64
	// True if an unknown operation has certainly taken effect.
	isCertain bool
}

func isUnknown(op bounded) bool { return op.Outcome == "unknown" }

func writesValue(op bounded) bool {
	return (op.Kind == "put" || op.Kind == "update") && op.Outcome != "refused"
}

// The token that the store certainly has when the operation returns, at least. -1 for none.
func shownToken(op bounded) int64 {
	switch {
	case isUnknown(op):
		return -1
	case op.Kind != "read" && op.Outcome == "ok":
		return number(op.Token)
	case op.Highest == "":
		return -1
	}
	return number(op.Highest)
}

// True if the operation depends on this value. An unknown update does, too, if it took effect.
func observes(op bounded, value string) bool {
	switch op.Kind {
	case "read":
		return text(op.Value) == value
	case "claim":
		return op.Outcome == "ok" && text(op.Value) == value
	case "update":
		return op.Outcome != "refused" && text(op.From) == value
	}
	return false
}

// True if the operation is right only while this token is the highest one.
func reports(op bounded, token int64) bool {
	hasHighest := op.Outcome == "refused" || op.Kind == "read" && op.Outcome == "ok"
	return hasHighest && op.Highest != "" && number(op.Highest) == token
}

// Returns the operations of one object without those that no verdict depends on.
func prune(operations []bounded) []bounded {
	for {
		kept := make([]bounded, 0, len(operations))
		for at, op := range operations {
			if !isUnknown(op) || bound(&op, at, operations) {
				kept = append(kept, op)
			}
		}
		// An update that was left out depends on no value any more.
		if len(kept) == len(operations) {
			return kept
		}
		operations = kept
	}
}

// Sets the end of an unknown operation. Returns false if the operation can be left out.
func bound(op *bounded, at int, all []bounded) bool {
	token, value := number(op.Token), text(op.Value)
	isWrite := writesValue(*op)
	seen, isAlone, isTokenAlone := int64(never), value != "none", true
	isObserved, isReported, isRaised, reported := false, false, false, int64(never)
	for index, other := range all {
		if index == at {
			continue
		}
		if shown := shownToken(other); shown > token {
			op.end = lesser(op.end, other.end)
		} else if shown == token && other.end < op.CallNs {
			isRaised = true
		}
		if isWrite && other.end >= op.CallNs && observes(other, value) {
			isObserved = true
			if !isUnknown(other) {
				seen = lesser(seen, other.end)
			}
		}
		if other.end >= op.CallNs && reports(other, token) {
			isReported = true
			reported = lesser(reported, other.end)
		}
		isAlone = isAlone && !(writesValue(other) && text(other.Value) == value)
		brings := other.Kind != "read" && other.Outcome != "refused" && number(other.Token) == token
		isTokenAlone = isTokenAlone && !brings
	}
	if op.end < op.CallNs || (!isObserved && (!isReported || isRaised)) {
		return false
	}
	if isWrite && isAlone && seen < never {
		op.isCertain, op.end = true, lesser(op.end, seen)
	}
	if isTokenAlone && token > 0 && reported < never {
		op.isCertain, op.end = true, lesser(op.end, reported)
	}
	return true
}

// As the builtin min, which Debian's Go does not have.
func lesser(a, b int64) int64 {
	if a < b {
		return a
	}
	return b
}
