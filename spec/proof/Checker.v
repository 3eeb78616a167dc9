(** * A checker of traces

    It computes, so coqc can run it on the traces that the simulation records. [CheckerSound] proves
    that an accepted trace is a run of [Protocol]. So the checker may search as it likes. *)

From Fenced Require Export TraceData.
From Fenced Require Import Protocol.
Require Import Arith NArith List Bool.
Import ListNotations.

(** Finds [k] elements of [rest] that go together with each other, and with those chosen. *)
Section Choose.
Context {A : Type} (together : A -> A -> bool).

Fixpoint choose (k : nat) (chosen rest : list A) : option (list A) :=
  match k, rest with
  | 0, _ => Some chosen
  | S _, [] => None
  | S k', x :: rest' =>
    match (if forallb (together x) chosen then choose k' (x :: chosen) rest' else None) with
    | Some found => Some found
    | None => choose k chosen rest'
    end
  end.
End Choose.

Section Check.
Variable size : N.
Variable plans : list (N * list (node * pair)).

Definition node_at (i : N) : node := N.to_nat (i mod size).
Definition is_node (n : node) : bool := Nat.ltb n (N.to_nat size).
Definition is_table (r : table) : bool := Nat.eqb (length r) (N.to_nat size).
Definition needed : nat := S (N.to_nat (size / 2)).

Definition planned (round : N) : list (node * pair) :=
  match get round plans with Some l => l | None => [] end.
Definition nominee (round : N) (n : node) : option pair :=
  if is_node n then get_node n (planned round) else None.
Definition nominated (round : N) : nominations := fun n => option_map entry_of (nominee round n).

(** The roster with the nominations of a round. *)
Fixpoint with_nominees (round : N) (n : node) (r : table) : table :=
  match r with
  | [] => []
  | x :: r => match nominee round n with Some e => e | None => x end
      :: with_nominees round (S n) r
  end.

Definition v_node (v : c_vote) : node := node_at (cv_inc v).
Definition p_node (p : c_promise) : node := node_at (cp_inc p).

(** Two votes of different nodes, of which none makes the other void. *)
Definition votes_agree (x y : c_vote) : bool :=
  negb (Nat.eqb (v_node x) (v_node y))
  && negb (is_earlier (cv_gen y, cv_inc y) (at_node (cv_table x) (v_node y)))
  && negb (is_earlier (cv_gen x, cv_inc x) (at_node (cv_table y) (v_node x))).
Definition promises_agree (x y : c_promise) : bool :=
  negb (Nat.eqb (p_node x) (p_node y))
  && negb (is_earlier (cp_gen y, cp_inc y) (at_node (cp_table x) (p_node y)))
  && negb (is_earlier (cp_gen x, cp_inc x) (at_node (cp_table y) (p_node x))).

Definition is_not_replaced (c : c_state) (i g : N) : bool :=
  forallb (fun d => negb (cd_first d && existsb (Nat.eqb (node_at i)) (cd_quorum d))
    || match nominee (cd_round d) (node_at i) with
       | Some e => N.eqb i (snd e) || is_earlier e (g, i)
       | None => true
       end) (c_decided c).

(** ** Actions *)

(** The voter, if it is as the event shows. *)
Definition voter (c : c_state) (i g : N) (r : table) : option c_mem :=
  match get i (c_memory c) with
  | Some m => if c_votes m && N.eqb (c_gen m) g && all_pairs is_same (c_table m) r
              then Some m else None
  | None => None
  end.

Definition begins (c : c_state) (o : N) : option c_state :=
  match get o (c_began c) with
  | Some _ => None
  | None => Some (c_next c [(o, c_now c)] [] [] [] [] [])
  end.

(** An incarnation that is new has no vote. A known one is as it was left. *)
Definition shows (c : c_state) (i : N) (may_vote : bool) (g highest : N) (r : table)
    : option c_state :=
  match get i (c_memory c) with
  | Some m =>
    if eqb (c_votes m) may_vote && N.eqb (c_gen m) g && N.eqb (c_highest m) highest
       && all_pairs is_same (c_table m) r
    then Some c else None
  | None =>
    if negb may_vote && is_table r then
      Some (c_next c [] [(i, {| c_votes := false; c_gen := g; c_highest := highest; c_bound := 0;
                                c_table := r; c_knows := roster_of r |})] [] [] [] [])
    else None
  end.

Definition votes_for (c : c_state) (o i g token : N) (r : table) : option c_state :=
  match voter c i g r, get o (c_began c) with
  | Some m, Some _ =>
    if is_not_replaced c i (c_gen m) && N.ltb (c_bound m) token then
      Some (c_next c []
        [(i, {| c_votes := true; c_gen := c_gen m; c_highest := N.max (c_highest m) token;
                c_bound := token; c_table := c_table m; c_knows := c_knows m |})]
        [{| cv_owner := o; cv_inc := i; cv_gen := c_gen m; cv_token := token;
            cv_table := c_table m; cv_time := c_now c; cv_roster := c_knows m |}] [] [] [])
    else None
  | _, _ => None
  end.

Definition notes (c : c_state) (i g token : N) (r : table) : option c_state :=
  match voter c i g r with
  | Some m =>
    if N.leb (c_bound m) token then
      Some (c_next c []
        [(i, {| c_votes := true; c_gen := c_gen m; c_highest := N.max (c_highest m) token;
                c_bound := token; c_table := c_table m; c_knows := c_knows m |})] [] [] [] [])
    else None
  | None => None
  end.

Definition forgets (c : c_state) (i : N) : option c_state :=
  match get i (c_memory c) with
  | Some m => Some (c_next c []
      [(i, {| c_votes := c_votes m; c_gen := c_gen m; c_highest := c_highest m;
              c_bound := c_highest m; c_table := c_table m; c_knows := c_knows m |})] [] [] [] [])
  | None => None
  end.

(** The generation under which an incarnation answers PROMISE. *)
Definition promising (round i : N) (may_vote : bool) (g : N) : N :=
  if may_vote then g else match nominee round (node_at i) with Some e => fst e | None => 0%N end.

Definition promises (c : c_state) (round i : N) : option c_state :=
  match get i (c_memory c) with
  | Some m =>
    let own := nominee round (node_at i) in
    let g := promising round i (c_votes m) (c_gen m) in
    if (c_votes m || match own with Some _ => true | None => false end)
       && is_not_replaced c i g
       && forallb (fun x => is_upto (at_node (c_table m) (fst x)) (snd x)) (planned round)
       && match own with Some e => N.eqb (snd e) i | None => true end
    then Some (c_next c []
      [(i, {| c_votes := c_votes m; c_gen := c_gen m; c_highest := c_highest m;
              c_bound := c_bound m; c_table := with_nominees round 0 (c_table m);
              c_knows := fun n => match nominated round n with
                                  | Some e => e
                                  | None => c_knows m n
                                  end |})] []
      [{| cp_round := round; cp_inc := i; cp_gen := g; cp_votes := c_votes m;
          cp_highest := c_highest m; cp_table := c_table m; cp_time := c_now c;
          cp_roster := c_knows m |}] [] [])
    else None
  | None => None
  end.

Definition decision_of (c : c_state) first round quorum source floor r : c_state :=
  c_next c [] [] [] [] [{| cd_first := first; cd_round := round; cd_quorum := quorum;
    cd_source := source; cd_floor := floor; cd_table := r; cd_time := c_now c |}] [].

(** True if the round nominates another incarnation of the node, later than [i] under [g]. *)
Definition is_replaced (round i g : N) : bool :=
  match nominee round (node_at i) with
  | Some e => negb (N.eqb i (snd e)) && is_earlier (g, i) e
  | None => false
  end.

(** On node [n], the assumptions of a first start hold. *)
Definition may_start (c : c_state) (round floor : N) (n : node) : bool :=
  forallb (fun v => negb (Nat.eqb (v_node v) n && is_replaced round (cv_inc v) (cv_gen v))
    || N.leb (cv_token v) floor) (c_voted c)
  && forallb (fun p => negb (Nat.eqb (p_node p) n && is_replaced round (cp_inc p) (cp_gen p))
    || forallb (fun x => match nominee round (fst x) with
                         | Some e => is_upto (snd x) e
                         | None => true
                         end) (planned (cp_round p))) (c_promised c).

(** No replaced incarnation of node [n] acts in the rest of the trace. *)
Definition is_quiet (rest : list event) (round : N) (n : node) : bool :=
  forallb (fun e => negb match e with
    | Votes _ i g _ _ => Nat.eqb (node_at i) n && is_replaced round i g
    | Promises later i may_vote g _ _ =>
      Nat.eqb (node_at i) n && is_replaced round i (promising later i may_vote g)
    | _ => false
    end) rest.

(** A first start may rest on any quorum on which its assumptions hold. If possible, it is one whose
    replaced incarnations stay quiet. *)
Definition starting (c : c_state) (rest : list event) (round floor : N) : list node :=
  let fit := filter (may_start c round floor) (seq 0 (N.to_nat size)) in
  let quiet := filter (is_quiet rest round) fit in
  if Nat.leb needed (length quiet) then quiet else fit.

Definition starts (c : c_state) (rest : list event) (round floor : N) (r : table)
    : option c_state :=
  let nodes := seq 0 (N.to_nat size) in
  let source := filter (fun p => N.eqb (cp_round p) round && N.leb (cp_highest p) floor)
                  (c_promised c) in
  let quorum := starting c rest round floor in
  if forallb (fun n => match nominee round n with
                       | Some e => is_upto e (at_node r n)
                       | None => false
                       end) nodes
     && forallb (fun n => existsb (fun p => Nat.eqb (p_node p) n) source) nodes
     && Nat.leb needed (length quorum)
  then Some (decision_of c true round quorum source floor r) else None.

(** Any consistent quorum of promises that the floor and the roster cover; or a first start. *)
Definition decides (c : c_state) (rest : list event) (round floor : N) (r : table) :
  option c_state :=
  let usable p := N.eqb (cp_round p) round && cp_votes p && N.leb (cp_highest p) floor
                  && all_pairs is_upto (cp_table p) r in
  if is_table r then
    match choose promises_agree needed [] (filter usable (c_promised c)) with
    | Some source => Some (decision_of c false round (map p_node source) source floor r)
    | None => starts c rest round floor r
    end
  else None.

Definition admits (c : c_state) (round i g floor highest : N) (r : table) : option c_state :=
  match nominee round (node_at i), get i (c_memory c) with
  | Some e, Some m =>
    let suffices d := N.eqb (cd_round d) round && N.leb (cd_floor d) floor
                      && all_pairs is_upto (cd_table d) r in
    if is_table r && is_same e (g, i) && N.leb floor highest && N.leb (c_bound m) floor
       && N.leb (c_highest m) highest && all_pairs is_upto (c_table m) r
       && existsb suffices (c_decided c)
    then Some (c_next c []
      [(i, {| c_votes := true; c_gen := g; c_highest := highest; c_bound := floor; c_table := r;
              c_knows := roster_of r |})] [] [] [] [])
    else None
  | _, _ => None
  end.

Fixpoint wins (c : c_state) (owners : list N) (token : N) : option c_state :=
  match owners with
  | [] => None
  | o :: owners =>
    let usable v := N.eqb (cv_owner v) o && N.eqb (cv_token v) token in
    match (if existsb (fun w => N.eqb (cw_owner w) o) (c_won c) then None
           else choose votes_agree needed [] (filter usable (c_voted c))) with
    | Some vs => Some (c_next c [] [] [] [] []
        [{| cw_owner := o; cw_token := token; cw_votes := vs; cw_time := c_now c |}])
    | None => wins c owners token
    end
  end.

(** [rest]: the events after [e]. *)
Definition take (c : c_state) (e : event) (rest : list event) : option c_state :=
  match e with
  | Begins o => begins c o
  | Shows i may_vote g highest r => shows c i may_vote g highest r
  | Votes o i g token r => votes_for c o i g token r
  | Notes i g token r => notes c i g token r
  | Forgets i => forgets c i
  | Promises round i may_vote g highest r =>
    match shows c i may_vote g highest r with Some c => promises c round i | None => None end
  | Decides round floor r => decides c rest round floor r
  | Admits round i g floor highest r => admits c round i g floor highest r
  | Wins owners token => wins c owners token
  end.

Fixpoint take_all (c : c_state) (es : list event) : option c_state :=
  match es with
  | [] => Some c
  | e :: es => match take c e es with Some c => take_all c es | None => None end
  end.

(** The place of the first refused event, from 1; 0 if all are accepted. *)
Fixpoint refused (c : c_state) (place : N) (es : list event) : N :=
  match es with
  | [] => 0
  | e :: es => match take c e es with Some c => refused c (N.succ place) es | None => place end
  end.
End Check.

Definition accepted (t : trace) : option c_state :=
  if N.eqb (size t) 0 then None else take_all (size t) (plans t) c_init (events t).
Definition first_refused (t : trace) : N :=
  if N.eqb (size t) 0 then 1 else refused (size t) (plans t) c_init 1 (events t).
