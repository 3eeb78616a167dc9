// Judges histories of `npm run torture` with porcupine, a checker of linearizability.
// The arguments are files of JSON lines. The output is a JSON line for each of them.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"time"

	"github.com/anishathalye/porcupine"
)

// A history that takes longer is "unknown".
const limit = 5 * time.Minute

type operation struct {
	Process  string  `json:"process"`
	Kind     string  `json:"kind"`
	Object   string  `json:"object"`
	CallNs   int64   `json:"callNs"`
	ReturnNs *int64  `json:"returnNs"`
	Outcome  string  `json:"outcome"`
	Token    string  `json:"token"`
	Value    *string `json:"value"`
	From     *string `json:"from"`
	Highest  string  `json:"highest"`
	Code     string  `json:"code"`
}

// The state of one object: a dispenser of tokens has only `highest`.
type state struct {
	highest int64
	value   string
}

// A missing value differs from every text.
func text(value *string) string {
	if value == nil {
		return "none"
	}
	return "=" + *value
}

// A write without a token counts as one with the token 0.
func number(digits string) int64 {
	if digits == "" {
		return 0
	}
	n, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

func step(s interface{}, input interface{}, _ interface{}) []interface{} {
	before, op := s.(state), input.(bounded)
	if op.Kind == "read" {
		if text(op.Value) == before.value && (op.Highest == "" || number(op.Highest) == before.highest) {
			return []interface{}{before}
		}
		return nil
	}
	token := number(op.Token)
	if op.Kind == "acquire" {
		if token > before.highest {
			return []interface{}{state{token, before.value}}
		}
		return nil
	}
	if op.Outcome == "refused" {
		if token < before.highest && number(op.Highest) == before.highest {
			return []interface{}{before}
		}
		return nil
	}
	after := state{token, before.value}
	fits := token >= before.highest
	switch op.Kind {
	case "claim":
		fits = fits && (op.Outcome == "unknown" || text(op.Value) == before.value)
	case "update":
		fits = fits && text(op.From) == before.value
		after.value = text(op.Value)
	case "put":
		after.value = text(op.Value)
	}
	switch {
	case op.Outcome == "unknown" && fits && !op.isCertain:
		return []interface{}{before, after}
	case op.Outcome == "unknown" && !op.isCertain:
		return []interface{}{before}
	case fits:
		return []interface{}{after}
	}
	return nil
}

var model = porcupine.NondeterministicModel{
	Init:  func() []interface{} { return []interface{}{state{0, "none"}} },
	Step:  step,
	Equal: func(a, b interface{}) bool { return a == b },
}

// Reads the operations of each object, without those that constrain nothing. If a client found that
// an object had lost its token, that one operation is impossible.
func read(path string) (map[string][]bounded, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	byObject := map[string][]bounded{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var op operation
		if err := json.Unmarshal(lines.Bytes(), &op); err != nil {
			return nil, err
		}
		if op.Code == "ratchet-lost" {
			op.Kind, op.Outcome, op.Token, op.Highest = "put", "refused", "0", "-1"
		}
		isUnseen := op.Outcome == "unknown" && (op.Kind == "read" || op.Kind == "acquire")
		isRefused := op.Outcome == "refused" && op.Kind == "acquire"
		if op.Outcome == "failed" || isUnseen || isRefused || op.Kind == "extend" || op.Kind == "release" {
			continue
		}
		end := int64(never)
		if op.Outcome != "unknown" {
			end = *op.ReturnNs
		}
		steps := []operation{op}
		if op.Kind == "claim" && op.Outcome == "refused" {
			// The refused claim may have raised the ratchet before a higher token came.
			raised := op
			raised.Outcome = "unknown"
			steps = append(steps, raised)
		}
		for _, one := range steps {
			byObject[op.Object] = append(byObject[op.Object], bounded{operation: one, end: end})
		}
	}
	return byObject, lines.Err()
}

// The client is only for pictures.
func forPorcupine(operations []bounded) []porcupine.Operation {
	all := make([]porcupine.Operation, len(operations))
	for at, op := range operations {
		all[at] = porcupine.Operation{Input: op, Call: op.CallNs, Return: op.end}
	}
	return all
}

func judge(path string, isPruned bool) (map[string]interface{}, error) {
	byObject, err := read(path)
	if err != nil {
		return nil, err
	}
	violated, undecided, began := []string{}, []string{}, time.Now()
	for object, operations := range byObject {
		if isPruned {
			operations = prune(operations)
		}
		switch porcupine.CheckOperationsTimeout(model.ToModel(), forPorcupine(operations), limit) {
		case porcupine.Illegal:
			violated = append(violated, object)
		case porcupine.Unknown:
			undecided = append(undecided, object)
		}
	}
	sort.Strings(violated)
	return map[string]interface{}{
		"file": path, "violated": violated, "undecided": undecided, "ms": time.Since(began).Milliseconds(),
	}, nil
}

func main() {
	isPruned := flag.Bool("prune", true, "leave out what no verdict depends on")
	flag.Parse()
	for _, path := range flag.Args() {
		verdict, err := judge(path, *isPruned)
		if err != nil {
			fmt.Fprintln(os.Stderr, path, err)
			os.Exit(1)
		}
		line, _ := json.Marshal(verdict)
		fmt.Println(string(line))
	}
}
