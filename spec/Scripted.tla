------------------------------ MODULE Scripted ------------------------------
(* The module Tokens with a prescribed beginning: the first steps are those of `Script`, by   *)
(* any node, acquisition or round. All steps are possible afterwards. So models reach states  *)
(* that are too many steps away for an exploration of everything.                             *)

EXTENDS Tokens, Sequences

CONSTANT Script \* the name of a script

VARIABLE place  \* the number of steps of the script that have been taken

Readmission == <<"inspect", "plan", "promise", "promise", "decide", "admit">>

Steps ==
  CASE Script = "a second node restarts" ->
         <<"begin", "acquire", "restart">> \o Readmission \o <<"restart">>
    \* Two rounds make the same nomination. One of them asks a node for its promise late, when a
    \* later nomination is in force.
    [] Script = "a nomination is overtaken" ->
         <<"restart", "inspect", "inspect", "plan", "plan", "promise", "promise", "decide", "admit",
           "begin", "acquire", "restart">> \o Readmission
    \* A round sees two nodes without a vote, because it inspects them at different moments. At
    \* each moment, a majority votes.
    [] Script = "inspected at different moments" ->
         <<"restart", "inspect", "inspect", "plan", "promise", "promise", "decide", "admit",
           "restart", "inspect", "inspect", "plan">>
    \* A client that still reaches the old master readmits another node.
    [] Script = "an old master is counted" ->
         Readmission \o <<"begin", "acquire", "acquire", "win", "restart", "inspect", "plan">>

Step(name) ==
  CASE name = "begin" -> \E a \in Acquisitions : Begin(a)
    [] name = "acquire" -> \E a \in Acquisitions, s \in Servers : Acquire(a, s)
    [] name = "win" -> \E a \in Acquisitions : Win(a)
    [] name = "restart" -> \E s \in Servers : Restart(s)
    [] name = "inspect" -> \E r \in Rounds, set \in Looks : Inspect(r, set)
    [] name = "plan" -> \E r \in Rounds : Plan(r)
    [] name = "promise" -> \E r \in Rounds, s \in Servers : Promise(r, s)
    [] name = "decide" -> \E r \in Rounds : Decide(r)
    [] name = "admit" -> \E r \in Rounds, s \in Servers : Admit(r, s)

ScriptedNext ==
  IF place < Len(Steps)
  THEN Step(Steps[place + 1]) /\ place' = place + 1
  ELSE Next /\ UNCHANGED place

ScriptedSpec == Init /\ place = 0 /\ [][ScriptedNext]_<<vars, place>>

=============================================================================
