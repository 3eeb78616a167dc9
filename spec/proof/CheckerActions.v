(** * Each event that the checker accepts is a step of the protocol *)

From Fenced Require Export CheckerState.
Require Import Arith NArith Lia List Bool.
Import ListNotations.

Ltac require H B :=
  match type of H with (if ?b then _ else None) = Some _ =>
    destruct b eqn:B; [inversion H; subst; clear H | discriminate] end.

Section Actions.
Variable size : N.
Variable plans : list (N * list (node * pair)).
Hypothesis size_pos : size <> 0%N.

Notation node_at := (node_at size).
Notation nominee := (nominee size plans).
Notation nominated := (nominated size plans).
Notation state_of := (state_of size plans).
Notation good := (good size).
Notation faithful := (faithful size).
Notation step := (step (E := one_set size)).
Notation not_replaced := (not_replaced (E := one_set size)).
Notation node_of_inc := (node_of_inc size).
Notation nominee_in := (nominee_in size plans).
Notation nominated_some := (nominated_some size plans).

Lemma node_at_lt i : node_at i < N.to_nat size.
Proof. unfold Checker.node_at. pose proof (N.mod_lt i size size_pos). lia. Qed.

Definition runs (c c' : c_state) := step (state_of c) (state_of c') /\ good c'.

Lemma voter_sound c i g r m : good c -> voter c i g r = Some m ->
  get i (c_memory c) = Some m /\ c_votes m = true /\ faithful (c_table m) (c_knows m).
Proof.
  unfold voter. intros (G & _) H. destruct (get i (c_memory c)) as [m'|] eqn:E; [|discriminate].
  require H B. rewrite !andb_true_iff in B. split; [|split]; [tauto | tauto | eapply G; eauto].
Qed.

Lemma memory_of c i m : get i (c_memory c) = Some m ->
  memory (state_of c) (N.to_nat i) = Some (mem_of m).
Proof. intros E. simpl. rewrite map_of_get, E. reflexivity. Qed.

Lemma not_replaced_sound c i g : is_not_replaced size plans c i g = true ->
  not_replaced (state_of c) (N.to_nat i) (N.to_nat g).
Proof.
  unfold is_not_replaced, not_replaced. rewrite forallb_forall. intros H d e Hd First Q E Ne.
  simpl in Hd. apply set_of_list_in in Hd. destruct Hd as (d' & I & ->). apply H in I.
  rewrite node_of_inc in *. simpl in First, Q, E. apply nominated_some in E.
  destruct E as (x & E & ->). rewrite E, First in I. simpl in I. apply orb_true_iff in I.
  destruct I as [I | I].
  - rewrite negb_true_iff in I. exfalso. rewrite <- not_true_iff_false in I. apply I.
    apply existsb_exists. exists (node_at i). split; [assumption | apply Nat.eqb_refl].
  - apply orb_true_iff in I. destruct I as [I | I].
    + apply N.eqb_eq in I. exfalso. apply Ne. subst. reflexivity.
    + apply is_earlier_sound in I. exact I.
Qed.

Lemma good_memory c i m : good c -> faithful (c_table m) (c_knows m) ->
  forall j m', get j ((i, m) :: c_memory c) = Some m' -> faithful (c_table m') (c_knows m').
Proof.
  intros (G & _) F j m'. simpl.
  destruct (N.eqb i j); [intros E; inversion E; subst; auto | apply G].
Qed.

Lemma begins_sound c o c' : good c -> begins c o = Some c' -> runs c c'.
Proof.
  unfold begins. intros G H. destruct (get o (c_began c)) eqn:E; inversion H; subst.
  split; [|exact G]. apply (Begin (state_of c) (N.to_nat o)).
  simpl. rewrite map_of_get, E. reflexivity.
Qed.

Lemma shows_sound c i b g x r c' : good c -> shows size c i b g x r = Some c' ->
  runs c c' \/ c' = c.
Proof.
  unfold shows. intros G H. destruct (get i (c_memory c)) as [m|] eqn:E.
  - require H B. auto.
  - left. require H B. apply andb_true_iff in B. destruct B as [_ B]. apply Nat.eqb_eq in B.
    set (m := {| c_votes := false; c_gen := g; c_highest := x; c_bound := 0; c_table := r;
                 c_knows := roster_of r |}).
    split.
    + apply (Appear (state_of c) (N.to_nat i) (mem_of m)); [|reflexivity].
      simpl. rewrite map_of_get, E. reflexivity.
    + split; [apply good_memory; [assumption | split; [exact B | reflexivity]] | apply G].
Qed.

Lemma mem_of_max b g x t l r f : mem_of {| c_votes := b; c_gen := g; c_highest := N.max x t;
    c_bound := l; c_table := r; c_knows := f |} =
  {| votes := b; generation := N.to_nat g; highest := Nat.max (N.to_nat x) (N.to_nat t);
     bound := fun _ => N.to_nat l; knows := f; sealed_for := None |}.
Proof. unfold mem_of; simpl. rewrite N2Nat.inj_max. reflexivity. Qed.

Lemma votes_sound c o i g t r c' : good c -> votes_for size plans c o i g t r = Some c' ->
  runs c c'.
Proof.
  unfold votes_for. intros G H. destruct (voter c i g r) as [m|] eqn:S; [|discriminate].
  destruct (get o (c_began c)) as [b|] eqn:B; [|discriminate].
  require H K. rewrite andb_true_iff, N.ltb_lt in K. destruct K as [A L].
  destruct (voter_sound _ _ _ _ _ G S) as (E & Vm & F). split.
  - unfold state_of; simpl. rewrite mem_of_max.
    refine (Vote (state_of c) (N.to_nat o) (N.to_nat i) (mem_of m) (N.to_nat t)
      (N.to_nat t) _ _ _ _ _ _ _); simpl; auto.
    + apply memory_of, E.
    + apply not_replaced_sound, A.
    + rewrite map_of_get, B. discriminate.
    + intros. lia.
  - split; [apply good_memory; assumption |]. destruct G as (_ & G2 & G3). split; [|exact G3].
    intros v [<- | Hv]; [exact F | auto].
Qed.

Lemma notes_sound c i g t r c' : good c -> notes c i g t r = Some c' -> runs c c'.
Proof.
  unfold notes. intros G H. destruct (voter c i g r) as [m|] eqn:S; [|discriminate].
  require H L. rewrite N.leb_le in L. destruct (voter_sound _ _ _ _ _ G S) as (E & Vm & F). split.
  - unfold state_of; simpl. rewrite mem_of_max, <- Vm.
    apply (Note (state_of c) (N.to_nat i) (mem_of m)); [apply memory_of, E | |]; simpl; intros; lia.
  - split; [apply good_memory; assumption | apply G].
Qed.

Lemma forgets_sound c i c' : good c -> forgets c i = Some c' -> runs c c'.
Proof.
  unfold forgets. intros G H. destruct (get i (c_memory c)) as [m|] eqn:E; inversion H; subst.
  split.
  - apply (Forget (state_of c) (N.to_nat i) (mem_of m) (fun _ => true)), memory_of, E.
  - split; [apply good_memory; [assumption | apply (proj1 G _ _ E)] | apply G].
Qed.

Lemma promises_sound c round i c' : good c -> promises size plans c round i = Some c' -> runs c c'.
Proof.
  unfold promises. intros G H. destruct (get i (c_memory c)) as [m|] eqn:E; [|discriminate].
  require H B. rewrite !andb_true_iff, forallb_forall in B. destruct B as [[[Own A] U] Name].
  assert (F : faithful (c_table m) (c_knows m)) by apply (proj1 G _ _ E). split.
  - match type of A with is_not_replaced _ _ _ _ ?g = _ =>
      apply (Promise (state_of c) (N.to_nat i) (mem_of m) (N.to_nat g) (nominated round)) end;
        simpl.
    + apply memory_of, E.
    + reflexivity.
    + unfold promising. destruct (c_votes m); [reflexivity |]. rewrite N2Nat.id.
      unfold Checker.nominated.
      destruct (nominee round (node_at i)) as [[h j]|]; [|discriminate].
      apply N.eqb_eq in Name. simpl in Name. subst j. reflexivity.
    + apply not_replaced_sound, A.
    + intros n e K. apply nominated_some in K. destruct K as (x & K & ->).
      rewrite (proj2 F). apply is_upto_sound. apply (U (n, x)), nominee_in, K.
    + intros e K. rewrite N2Nat.id in K. apply nominated_some in K. destruct K as (x & K & ->).
      rewrite K in Name. apply N.eqb_eq in Name. simpl. congruence.
  - split; [apply good_memory; [assumption |]; simpl; apply with_nominees_faithful; assumption |].
    destruct G as (_ & G2 & G3). split; [exact G2 |]. intros p [<- | Hp]; [exact F | auto].
Qed.
End Actions.
