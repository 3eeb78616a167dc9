-------------------------------- MODULE Store --------------------------------
(* One object of FencedS3, a store that rejects stale tokens. A write is one conditional PUT: *)
(* it replaces the version that its writer has read, and no other. Replies may be lost.       *)
(* Requests may arrive late, or twice.                                                        *)

EXTENDS Naturals, Sequences, FiniteSets

CONSTANTS
  Tokens,      \* the tokens of the writers; each writer makes one change, under its own token
  Way,         \* how a writer changes the object: "update", "claim" or "put"
  HistoryMax,  \* how many earlier write ids the object keeps
  Mutant       \* the protective step that is left out; "none" for the store as it is

VARIABLES
  object,    \* what is stored: write id, token, the changes in its value, earlier write ids
  writer,    \* by token: what the writer is doing, and what it has read
  requests,  \* the PUTs that were sent. They stay: each may arrive again at any time
  replies,   \* answers to the PUTs. They stay: each may arrive, or never
  applied    \* write ids in the order in which they were applied

vars == <<object, writer, requests, replies, applied>>

(* Write ids are pairs: a claim and a change of one writer are two writes. *)
Initial == <<0, "initial">>

Start(t) == IF Way = "claim" /\ Mutant # "read before the claim" THEN "new" ELSE "claimed"

Init ==
  /\ object = [id |-> Initial, token |-> 0, value |-> {}, earlier |-> <<>>]
  /\ writer = [t \in Tokens |->
       [phase |-> Start(t), base |-> object, value |-> {}, outcome |-> "none"]]
  /\ requests = {}
  /\ replies = {}
  /\ applied = <<>>

----------------------------------------------------------------------------
(* The writer *)

IsStale(t) == t < object.token /\ Mutant # "token not compared"

End(t, outcome) == [writer EXCEPT ![t].phase = "ended", ![t].outcome = outcome]

(* Reads the stored version, and sends a PUT that may replace only this version. *)
Put(t, kind, value) ==
  /\ IF IsStale(t)
     THEN /\ writer' = End(t, "stale")
          /\ requests' = requests
     ELSE /\ writer' = [writer EXCEPT
               ![t].phase = IF kind = "claim" THEN "claiming" ELSE "changing",
               ![t].base = object]
          /\ requests' = requests \cup
               {[id |-> <<t, kind>>, token |-> t, base |-> object, value |-> value]}
  /\ UNCHANGED <<object, replies, applied>>

Claim(t) ==
  /\ writer[t].phase = "new"
  /\ Put(t, "claim", object.value)

(* Reads the object, and raises no token. *)
Read(t) ==
  /\ writer[t].phase = "claimed"
  /\ writer' = [writer EXCEPT ![t].phase = "reading", ![t].value = object.value]
  /\ UNCHANGED <<object, requests, replies, applied>>

(* `update` writes only if the value is still the one that was read. `put` compares the token *)
(* alone, and so does a change after a claim.                                                 *)
Change(t) ==
  /\ writer[t].phase = "reading"
  /\ Way = "update" => object.value = writer[t].value
  /\ Put(t, "change", writer[t].value \cup {t})

(* `update` reads again if the value has changed. *)
ReadAgain(t) ==
  /\ Way = "update" /\ writer[t].phase = "reading" /\ object.value # writer[t].value
  /\ writer' = [writer EXCEPT ![t].phase = "claimed"]
  /\ UNCHANGED <<object, requests, replies, applied>>

----------------------------------------------------------------------------
(* The storage *)

(* The condition of a PUT. The write id is in the bytes, so the ETag names one version. *)
Holds(request) ==
  CASE Mutant = "no condition" -> TRUE
    [] Mutant = "token beside the bytes" -> object.value = request.base.value
    [] OTHER -> object.id = request.base.id

Kept(history) == SubSeq(history, 1, IF Len(history) < HistoryMax THEN Len(history) ELSE HistoryMax)

Arrive ==
  \E request \in requests :
    IF Holds(request)
    THEN /\ object' = [id |-> request.id, token |-> request.token, value |-> request.value,
                       earlier |-> Kept(<<request.base.id>> \o request.base.earlier)]
         /\ replies' = replies \cup {[id |-> request.id, answer |-> "done"]}
         /\ applied' = Append(applied, request.id)
         /\ UNCHANGED <<writer, requests>>
    ELSE /\ replies' = replies \cup {[id |-> request.id, answer |-> "refused"]}
         /\ UNCHANGED <<object, writer, requests, applied>>

----------------------------------------------------------------------------
(* The outcome *)

Sent(t) == IF writer[t].phase = "claiming" THEN <<t, "claim">> ELSE <<t, "change">>

InHistory(id) == \E at \in 1..Len(object.earlier) : object.earlier[at] = id

(* The outcome of a write, as the stored version and its history show it: core/resolve.ts.    *)
Shown(t) ==
  LET id == Sent(t)
      base == writer[t].base
  IN CASE object.id = id \/ InHistory(id) -> "applied"
       [] object.id = base.id -> "unknown"
       [] object.token < t -> "not-applied"
       [] InHistory(base.id) -> "not-applied"
       [] OTHER -> "unknown"

Conclude(t, outcome) ==
  /\ writer' = IF writer[t].phase = "claiming" /\ outcome = "applied"
               THEN [writer EXCEPT ![t].phase = "claimed"] ELSE End(t, outcome)
  /\ UNCHANGED <<object, requests, replies, applied>>

(* A success is believed at once. After any other reply, and after none, the writer reads the *)
(* object: a refusal may answer a second copy of a request whose first copy was applied.      *)
Settle(t) ==
  /\ writer[t].phase \in {"claiming", "changing"}
  /\ \/ [id |-> Sent(t), answer |-> "done"] \in replies /\ Conclude(t, "applied")
     \/ Conclude(t, Shown(t))
     \/ /\ Mutant = "a refusal is believed"
        /\ [id |-> Sent(t), answer |-> "refused"] \in replies
        /\ Conclude(t, "not-applied")
     \/ Mutant = "a lost reply is called failed" /\ Conclude(t, "not-applied")

Next ==
  \/ Arrive
  \/ \E t \in Tokens : Claim(t) \/ Read(t) \/ Change(t) \/ ReadAgain(t) \/ Settle(t)

Spec == Init /\ [][Next]_vars

----------------------------------------------------------------------------
(* Properties *)

(* The ratchet only rises: a write that carries a stale token changes nothing. *)
Ratchet == [][object'.token >= object.token]_vars

(* No write was applied twice. *)
Once == \A i, j \in 1..Len(applied) : i # j => applied[i] # applied[j]

WasApplied(t) == \E at \in 1..Len(applied) : applied[at] = <<t, "change">>

(* The reported outcome is true, and stays true. *)
Truth ==
  \A t \in Tokens :
    /\ writer[t].outcome = "applied" => WasApplied(t)
    /\ writer[t].outcome \in {"not-applied", "stale"} => ~WasApplied(t)

(* A change that was applied is in the value. *)
NoLostUpdate == \A t \in Tokens : WasApplied(t) => t \in object.value

=============================================================================
