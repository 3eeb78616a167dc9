(** * The theorems are about something: a run in which a readmitted node decides

    Set S has the nodes 3 S, 3 S + 1 and 3 S + 2. The incarnations of node n are 10 n, 10 n + 1, and
    so on. All acquisitions want resource 0. *)

From Fenced Require Import Majorities.
Require Import Arith Lia List.
Import ListNotations.

Definition three S := [3 * S; 3 * S + 1; 3 * S + 2].

Lemma three_members S n : In n (three S) <-> n / 3 = S.
Proof.
  unfold three; cbn [In]. pose proof (Nat.div_mod n 3 ltac:(discriminate)) as D.
  pose proof (Nat.mod_upper_bound n 3 ltac:(discriminate)) as M. split.
  - intros H. symmetry. apply (Nat.div_unique n 3 S (n - 3 * S)); lia.
  - intros <-. remember (n / 3) as q. remember (n mod 3) as r. clear Heqq Heqr. lia.
Qed.

#[local] Instance example : Setting := majorities
  (fun i => i / 10) (fun n => n / 3) (fun _ x => x =? 0) three three_members.

Definition blank : mem := {| votes := false; generation := 0; highest := 0; bound := fun _ => 0;
  knows := fun _ => (0, 0); sealed_for := None |}.
Definition empty : state := {| now := 0; began := fun _ => None; memory := fun _ => None;
  awaits := fun _ => None; voted := fun _ => False; promised := fun _ => False;
  decided := fun _ => False; won := fun _ => False; leased := fun _ => False |}.

Definition voter g high r : mem := {| votes := true; generation := g; highest := high;
  bound := fun _ => high; knows := r; sealed_for := None |}.
Definition raised m high : mem := {| votes := true; generation := generation m;
  highest := Nat.max (highest m) high; bound := fun x => if x =? 0 then high else bound m x;
  knows := knows m; sealed_for := None |}.

(** The first start nominates incarnations 0, 10 and 20. *)
Definition first : nominations := fun n =>
  match n with 0 => Some (1, 0) | 1 => Some (1, 10) | 2 => Some (1, 20) | _ => None end.
(** Node 1 loses its memory, and begins incarnation 11. *)
Definition again : nominations := fun n => match n with 1 => Some (2, 11) | _ => None end.
Definition roster_of (nom : nominations) : roster :=
  fun n => match nom n with Some e => e | None => (0, 0) end.

Definition nominee : mem := {| votes := false; generation := 0; highest := 0; bound := fun _ => 0;
  knows := roster_of first; sealed_for := None |}.
Definition voter_1 := voter 1 0 (roster_of first).

Definition first_promise i t : promise := {| p_inc := i; p_gen := 1; p_votes := false;
  p_nominated := first; p_highest := 0; p_roster := fun _ => (0, 0); p_sealed_for := None;
  p_time := t |}.
Definition first_start : decision := {| d_set := 0; d_first := true; d_nominated := first;
  d_quorum := fun n => In n [0; 1; 2]; d_source := fun n => first_promise (10 * n) (3 + n);
  d_floor := 0; d_roster := roster_of first; d_time := 6 |}.

(** Acquisition 1 wins with the votes of nodes 0 and 1. *)
Definition vote_of o i g t token r : vote := {| v_owner := o; v_inc := i; v_gen := g; v_low := token;
  v_high := token; v_roster := r; v_time := t |}.
Definition votes_1 n := match n with
  | 0 => vote_of 1 0 1 11 1 (roster_of first) | _ => vote_of 1 10 1 12 1 (roster_of first) end.
Definition win_1 : win := {| w_set := 0; w_owner := 1; w_low := 1; w_high := 1;
  w_quorum := fun n => In n [0; 1]; w_vote := votes_1; w_time := 13 |}.

(** Nodes 0 and 2 promise, and node 1 is readmitted above token 1. *)
Definition promise_of i t high : promise := {| p_inc := i; p_gen := 1; p_votes := true;
  p_nominated := again; p_highest := high; p_roster := roster_of first; p_sealed_for := None;
  p_time := t |}.
Definition promises n := match n with 0 => promise_of 0 15 1 | _ => promise_of 20 16 0 end.
Definition readmission : decision := {| d_set := 0; d_first := false; d_nominated := again;
  d_quorum := fun n => In n [0; 2]; d_source := promises; d_floor := 1; d_roster := roster_of first;
  d_time := 17 |}.

(** Acquisition 2 wins with the votes of nodes 1 and 2. *)
Definition roster_2 : roster := fun n => match again n with Some e => e | None => roster_of first n end.
Definition votes_2 n := match n with
  | 1 => vote_of 2 11 2 20 2 (roster_of first) | _ => vote_of 2 20 1 21 2 roster_2 end.
Definition win_2 : win := {| w_set := 0; w_owner := 2; w_low := 2; w_high := 2;
  w_quorum := fun n => In n [1; 2]; w_vote := votes_2; w_time := 22 |}.

Lemma two_of_three l : NoDup l -> incl l (three 0) -> 3 < 2 * length l -> quorum 0 (fun n => In n l).
Proof. intros N I L. split; [exact I | exists l; auto]. Qed.

Lemma again_is_later n e : again n = Some e -> upto (roster_of first n) e.
Proof.
  destruct n as [| [| n]]; cbn; intros H; try discriminate. injection H as <-. unfold upto; cbn; lia.
Qed.

Ltac nodes := repeat match goal with
  | H : set_of _ = 0 |- _ => apply (proj2 (three_members _ _)) in H
  | H : In _ _ |- _ => unfold three in H; cbn in H
  | H : _ \/ _ |- _ => destruct H
  | H : False |- _ => destruct H
  | H : voted _ _ |- _ => hnf in H
  | H : promised _ _ |- _ => hnf in H
  | H : decided _ _ |- _ => hnf in H
  | H : won _ _ |- _ => hnf in H
  | H : add _ _ _ |- _ => hnf in H
  | H : (fun _ => False) _ |- _ => destruct H
  | H : ?x = _ |- _ => is_var x; subst x
  | H : _ = ?x |- _ => is_var x; subst x
  end.
Ltac present := repeat (hnf; first [left; reflexivity | right]); reflexivity.
Ltac known := try reflexivity; try match goal with H : reach _ |- _ => clear H end; intros;
  unfold consistent_votes, consistent_promises, not_replaced, earlier, covered in *; intros;
  try solve [apply upto_refl | apply again_is_later; assumption | unfold roster_of; match goal with H : first _ = _ |- _ =>
    rewrite H; apply upto_refl end];
  try match goal with
  | |- quorum _ _ => apply two_of_three; [repeat constructor | intros n |]; cbn; intuition lia
  end;
  nodes;
  try match goal with |- voted _ _ => present | |- promised _ _ => present | |- decided _ _ => present end;
  cbn in *; nodes; cbn in *;
  repeat match goal with H : Some _ = Some _ |- _ => injection H as H; subst; cbn in * end;
  try solve [discriminate | present | unfold upto; cbn; lia].
Tactic Notation "act" hyp(R) uconstr(A) :=
  eapply Next in R; [| eapply A; known];
  [unfold tick, begin, remember, cast, give, decide, win_with in R; cbn in R | ..].

Theorem not_empty : exists s A B, reach s /\ won s A /\ won s B /\
  w_quorum B 1 /\ v_inc (w_vote B 1) = 11 /\ w_high A < w_low B.
Proof.
  assert (R : reach empty) by (apply Start; unfold init; cbn; tauto).
  act R (Appear _ 0 blank). act R (Appear _ 10 blank). act R (Appear _ 20 blank).
  act R (Promise _ 0 blank 1 first). act R (Promise _ 10 blank 1 first). act R (Promise _ 20 blank 1 first).
  act R (FirstStart _ 0 first (fun n => In n [0; 1; 2]) (fun n => first_promise (10 * n) (3 + n)) 0
    (roster_of first)).
  act R (Admit _ first_start 0 nominee 1 0 (fun _ => 0) (roster_of first)).
  act R (Admit _ first_start 10 nominee 1 0 (fun _ => 0) (roster_of first)).
  act R (Admit _ first_start 20 nominee 1 0 (fun _ => 0) (roster_of first)).
  act R (Begin _ 1).
  act R (Vote _ 1 0 voter_1 1 1).
  act R (Vote _ 1 10 voter_1 1 1).
  act R (Win _ 0 1 1 1 (fun n => In n [0; 1]) votes_1).
  act R (Appear _ 11 blank).
  act R (Promise _ 0 (raised voter_1 1) 1 again). act R (Promise _ 20 voter_1 1 again).
  act R (Decide _ 0 again (fun n => In n [0; 2]) promises 1 (roster_of first)).
  act R (Admit _ readmission 11 blank 2 1 (fun _ => 1) (roster_of first)).
  act R (Begin _ 2).
  act R (Vote _ 2 11 (voter 2 1 (roster_of first)) 2 2). act R (Vote _ 2 20 (voter 1 0 roster_2) 2 2).
  act R (Win _ 0 2 2 2 (fun n => In n [1; 2]) votes_2).
  eexists; exists win_1, win_2. split; [exact R |].
  repeat split; try reflexivity; try present; cbn; auto.
Qed.
