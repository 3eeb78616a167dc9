------------------------------- MODULE Trace --------------------------------
(* Checks whether traces of the simulation are behaviours of the module Tokens. README.md     *)
(* lists the events and the fields that are compared.                                         *)
(*                                                                                            *)
(* Each event names an action and some variables of the state before or after it. TLC finds   *)
(* values for the others. A trace is accepted if TLC reaches its end: `Reached` prints each   *)
(* event that TLC has reached.                                                                *)

EXTENDS Tokens, Integers, Sequences

CONSTANTS
  Traces,  \* a sequence of traces; a trace is a sequence of events
  Rosters  \* a sequence of rosters; an event refers to one by its place

VARIABLES
  trace,   \* the place of the trace in `Traces`
  next,    \* the place of the next event
  saved    \* by node: what its snapshots keep

traceVars == <<vars, trace, next, saved>>

(* Before their first start, the nodes are empty. *)
TraceInit ==
  /\ InitWithoutMemory({})
  /\ trace \in DOMAIN Traces
  /\ next = 1
  /\ saved = [n \in Nodes |-> {Empty}]

(* The node votes as the incarnation, generation and roster of the event. *)
Shows(e) ==
  /\ node[e.n].name = e.name
  /\ node[e.n].gen = e.gen
  /\ node[e.n].roster = Rosters[e.roster]

TraceAcquire(e) == Acquire(e.a, e.n) /\ Shows(e) /\ node'[e.n].last = e.token

(* CONFIRM stores a token that another node has granted to the acquisition. *)
TraceConfirm(e) ==
  /\ Shows(e)
  /\ \E vote \in replies : vote.owner = e.a /\ vote.token = e.chosen
  /\ ConfirmAs(e.a, e.n, e.chosen)
  /\ node'[e.n].last = e.token

(* `e.number` is the token of the lease, or a token that the node has reported. *)
TraceBackfill(e) ==
  /\ Shows(e)
  /\ Backfill(e.a, e.n, e.number)
  /\ node'[e.n].last = e.token

TraceWin(e) == \E a \in e.among : Win(a) /\ token'[a] = e.token

TraceRestart(e) ==
  \E found \in saved[e.n] \cup {node[e.n]} :
    /\ found.gen = e.gen /\ found.max = e.max /\ found.floor = e.floor
    /\ found.roster = Rosters[e.roster]
    /\ RestartWith(e.n, found)

(* An inspection that no round of readmission uses. If the node has no name yet, it gets one. *)
NameOnly(n, name) ==
  /\ node' = [node EXCEPT ![n] = Named(n, name)]
  /\ names' = [names EXCEPT ![n] = @ \cup {node'[n].name}]
  /\ UNCHANGED <<acquisitions, replies, round, losses, forgets>>

TraceInspect(e) ==
  /\ node[e.n].isNamed \/ e.name \notin names[e.n]
  /\ IF e.r = 0 THEN NameOnly(e.n, e.name) ELSE InspectAny(e.r, {e.n}, [s \in {e.n} |-> e.name])
  /\ node'[e.n].isNamed /\ node'[e.n].name = e.name /\ node'[e.n].voting = e.voting
  /\ node'[e.n].gen = e.gen /\ node'[e.n].roster = Rosters[e.roster] /\ node'[e.n].max = e.max

(* The protocol assumes that the clock is above every token so far. If the round used the     *)
(* clock, `e.floor` is the clock's time.                                                      *)
TracePlan(e) ==
  \E least \in {nomination.gen : nomination \in e.nominations}, clock \in {Clock, e.floor} :
    /\ clock >= Clock
    /\ PlanFrom(e.r, least, clock)
    /\ round'[e.r].nominations = e.nominations

TracePromise(e) ==
  /\ node[e.n].max = e.max /\ node[e.n].voting = e.voting /\ Shows(e)
  /\ PromiseAs(e.r, e.n, e.counts)

TraceDecide(e) ==
  /\ Decide(e.r)
  /\ round'[e.r].floor = e.floor
  /\ round'[e.r].roster = Rosters[e.roster]

TraceAdmit(e) ==
  /\ Admit(e.r, e.n)
  /\ node'[e.n].gen = e.gen /\ node'[e.n].floor = e.floor
  /\ node'[e.n].roster = Rosters[e.roster]

Step(e) ==
  CASE e.do = "begin" -> Begin(e.a)
    [] e.do = "acquire" -> TraceAcquire(e)
    [] e.do = "confirm" -> TraceConfirm(e)
    [] e.do = "backfill" -> TraceBackfill(e)
    [] e.do = "refuse" -> ~MayVote(e.n) /\ UNCHANGED vars
    [] e.do = "win" -> TraceWin(e)
    [] e.do = "forget" -> IF node[e.n].last = 0 THEN UNCHANGED vars ELSE Forget(e.n)
    [] e.do = "restart" -> TraceRestart(e)
    [] e.do = "save" -> UNCHANGED vars
    [] e.do = "inspect" -> TraceInspect(e)
    [] e.do = "plan" -> TracePlan(e)
    [] e.do = "promise" -> TracePromise(e)
    [] e.do = "decide" -> TraceDecide(e)
    [] e.do = "admit" -> TraceAdmit(e)

TraceNext ==
  /\ next <= Len(Traces[trace])
  /\ LET e == Traces[trace][next]
     IN /\ Step(e)
        /\ saved' = IF e.do = "save" THEN [saved EXCEPT ![e.n] = @ \cup {node[e.n]}] ELSE saved
  /\ next' = next + 1
  /\ UNCHANGED trace

TraceSpec == TraceInit /\ [][TraceNext]_traceVars

Reached == PrintT(<<trace, next>>)

=============================================================================
