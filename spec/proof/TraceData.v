(** * Traces, and the state of their checker

    A trace is about one node set and one resource. Numbers are binary, and maps are lists, so that
    coqc computes fast. The node of incarnation [i] is [i] modulo the number of nodes. *)

From Fenced Require Import Protocol.
Require Import Arith NArith List Bool.
Import ListNotations.

(** ** Entries and rosters as data *)

Definition pair := (N * N)%type.
Definition table := list pair.

Definition entry_of (x : pair) : entry := (N.to_nat (fst x), N.to_nat (snd x)).
Definition at_node (r : table) (n : node) : pair := nth n r (0, 0)%N.
Definition roster_of (r : table) : roster := fun n => entry_of (at_node r n).

Definition is_earlier (x y : pair) : bool :=
  ((fst x <? fst y) || ((fst x =? fst y) && (snd x <? snd y)))%N.
Definition is_same (x y : pair) : bool := ((fst x =? fst y) && (snd x =? snd y))%N.
Definition is_upto (x y : pair) : bool := is_earlier x y || is_same x y.

Fixpoint all_pairs (ok : pair -> pair -> bool) (r r' : table) : bool :=
  match r, r' with
  | [], [] => true
  | x :: r, y :: r' => ok x y && all_pairs ok r r'
  | _, _ => false
  end.

Fixpoint get {A} (i : N) (l : list (N * A)) : option A :=
  match l with
  | [] => None
  | (j, x) :: l => if N.eqb j i then Some x else get i l
  end.
Fixpoint get_node {A} (n : node) (l : list (node * A)) : option A :=
  match l with
  | [] => None
  | (m, x) :: l => if Nat.eqb m n then Some x else get_node n l
  end.

(** ** Traces *)

(** What was observed. [i]: incarnation; [g]: its generation; [r]: a roster; [round]: a round of
    readmission; [highest]: the highest token that the node remembers. *)
Inductive event :=
| Begins (o : N)
(** INSPECT. *)
| Shows (i : N) (may_vote : bool) (g highest : N) (r : table)
(** ACQUIRE and CONFIRM. *)
| Votes (o i g token : N) (r : table)
(** BACKFILL. *)
| Notes (i g token : N) (r : table)
| Forgets (i : N)
(** PROMISE. The facts are those before it. *)
| Promises (round i : N) (may_vote : bool) (g highest : N) (r : table)
| Decides (round floor : N) (r : table)
| Admits (round i g floor highest : N) (r : table)
(** One of these acquisitions has won. *)
| Wins (owners : list N) (token : N).

Record trace := {
  size : N;
  (** The nominations of each round. *)
  plans : list (N * list (node * pair));
  events : list event
}.

(** ** The state of the checker *)

(** The last field of a memory, a vote and a promise is the roster as the protocol has it. It is
    never computed. *)
Record c_mem := {
  c_votes : bool; c_gen : N; c_highest : N; c_bound : N; c_table : table; c_knows : roster
}.
Record c_vote := {
  cv_owner : N; cv_inc : N; cv_gen : N; cv_token : N; cv_table : table; cv_time : nat;
  cv_roster : roster
}.
Record c_promise := {
  cp_round : N; cp_inc : N; cp_gen : N; cp_votes : bool; cp_highest : N; cp_table : table;
  cp_time : nat; cp_roster : roster
}.
Record c_decision := {
  cd_first : bool; cd_round : N; cd_quorum : list node; cd_source : list c_promise; cd_floor : N;
  cd_table : table; cd_time : nat
}.
Record c_win := { cw_owner : N; cw_token : N; cw_votes : list c_vote; cw_time : nat }.

Record c_state := {
  c_now : nat;
  c_began : list (N * nat);
  c_memory : list (N * c_mem);
  c_voted : list c_vote;
  c_promised : list c_promise;
  c_decided : list c_decision;
  c_won : list c_win
}.

Definition c_init : c_state := {| c_now := 0; c_began := []; c_memory := []; c_voted := [];
  c_promised := []; c_decided := []; c_won := [] |}.

(** The next state, with what an action adds. *)
Definition c_next (c : c_state) began memory voted promised decided won : c_state := {|
  c_now := S (c_now c); c_began := began ++ c_began c; c_memory := memory ++ c_memory c;
  c_voted := voted ++ c_voted c; c_promised := promised ++ c_promised c;
  c_decided := decided ++ c_decided c; c_won := won ++ c_won c |}.
