------------------------------ MODULE Scripted ------------------------------
(* The module Tokens with a prescribed beginning: the first steps are those of `Script`. All  *)
(* steps are possible afterwards. So models reach states that are too many steps away for an  *)
(* exploration of everything.                                                                 *)

EXTENDS Tokens, Sequences

CONSTANT Script \* the name of a script

VARIABLE place  \* the number of steps of the script that have been taken

(* Steps of these kinds, each by any node, acquisition or round. *)
Steps(kinds) ==
  [i \in 1..Len(kinds) |->
     [kind |-> kinds[i], rounds |-> Rounds, servers |-> Servers, looks |-> Looks]]

Readmission == <<"inspect", "plan", "promise", "promise", "decide", "admit">>

At(kind, s) == <<[Steps(<<kind>>)[1] EXCEPT !.servers = {s}]>>
By(kind, r) == <<[Steps(<<kind>>)[1] EXCEPT !.rounds = {r}]>>
Look(r, looks) == <<[By("inspect", r)[1] EXCEPT !.looks = looks]>>

(* One of five nodes is readmitted by a client that reaches one of these sets of nodes. *)
Whole(r, looks) ==
  Look(r, looks) \o By("plan", r) \o By("promise", r) \o By("promise", r) \o By("promise", r)
    \o By("decide", r) \o By("admit", r)

Four == {set \in SUBSET Nodes : Cardinality(set) = 4}

Beginning ==
  CASE Script = "a second node restarts" ->
         Steps(<<"begin", "acquire", "restart">> \o Readmission \o <<"restart">>)
    \* Two rounds make the same nomination. One of them asks a node for its promise late, when a
    \* later nomination is in force.
    [] Script = "a nomination is overtaken" ->
         Steps(<<"restart", "inspect", "inspect", "plan", "plan", "promise", "promise", "decide",
           "admit", "begin", "acquire", "restart">> \o Readmission)
    \* A round sees two nodes without a vote, because it inspects them at different moments. At
    \* each moment, a majority votes.
    [] Script = "inspected at different moments" ->
         Steps(<<"restart", "inspect", "inspect", "plan", "promise", "promise", "decide", "admit",
           "restart", "inspect", "inspect", "plan">>)
    \* A client that still reaches the old master readmits another node.
    [] Script = "an old master is counted" ->
         Steps(Readmission \o
           <<"begin", "acquire", "acquire", "win", "restart", "inspect", "plan">>)
    \* Node 5 loses its memory twice. Round 1 inspects the others before round 2 readmits the
    \* first incarnation. It nominates the second one under the same generation.
    [] Script = "two incarnations, one generation" ->
         At("lose", 5) \o Look(1, {{1, 2, 3, 4}}) \o Whole(2, {{2, 3, 4, 5}})
           \o Steps(<<"begin">>) \o At("acquire", 5)
           \o At("lose", 5) \o Look(1, {{5}}) \o By("plan", 1) \o By("promise", 1)
           \o At("lose", 3) \o Whole(3, Four)
           \o At("lose", 4) \o Whole(4, Four) \o Whole(5, Four)
           \o At("lose", 1) \o Whole(6, Four)

Step(step) ==
  CASE step.kind = "begin" -> \E a \in Acquisitions : Begin(a)
    [] step.kind = "acquire" -> \E a \in Acquisitions, s \in step.servers : Acquire(a, s)
    [] step.kind = "win" -> \E a \in Acquisitions : Win(a)
    [] step.kind = "restart" -> \E s \in step.servers : Restart(s)
    [] step.kind = "lose" -> \E s \in step.servers : RestartWith(s, Empty)
    [] step.kind = "inspect" -> \E r \in step.rounds, set \in step.looks : Inspect(r, set)
    [] step.kind = "plan" -> \E r \in step.rounds : Plan(r)
    [] step.kind = "promise" -> \E r \in step.rounds, s \in step.servers : Promise(r, s)
    [] step.kind = "decide" -> \E r \in step.rounds : Decide(r)
    [] step.kind = "admit" -> \E r \in step.rounds, s \in step.servers : Admit(r, s)

ScriptedNext ==
  IF place < Len(Beginning)
  THEN Step(Beginning[place + 1]) /\ place' = place + 1
  ELSE Next /\ UNCHANGED place

ScriptedSpec == Init /\ place = 0 /\ [][ScriptedNext]_<<vars, place>>

=============================================================================
