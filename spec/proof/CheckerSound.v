(** * What the checker accepts is a run of the protocol *)

From Fenced Require Import CheckerQuorums.
Require Import Arith NArith Lia List.
Import ListNotations.

Section Sound.
Variable size : N.
Variable plans : list (N * list (node * pair)).
Hypothesis size_pos : size <> 0%N.

Notation state_of := (state_of size plans).
Notation good := (good size).
Notation step := (step (E := one_set size)).
Notation reach := (reach (E := one_set size)).
Notation runs := (runs size plans).
Notation take := (take size plans).
Notation take_all := (take_all size plans).

(** What never changes, and never goes back. *)
Definition keeps (s s' : state) := now s <= now s' /\
  (forall o t, began s o = Some t -> began s' o = Some t) /\ (forall l, leased s l -> leased s' l).

Lemma keeps_refl s : keeps s s.
Proof. repeat split; auto. Qed.

Lemma keeps_trans a b c : keeps a b -> keeps b c -> keeps a c.
Proof. intros (? & ? & ?) (? & ? & ?). repeat split; auto; lia. Qed.

Lemma step_keeps s s' : step s s' -> keeps s s'.
Proof.
  destruct 1; repeat split; simpl; unfold add; auto.
  intros o' t K. unfold put. destruct (Nat.eq_dec o' o); [congruence | exact K].
Qed.

(** A state of the checker that stands for a reached state. *)
Definition sound (c : c_state) := good c /\ reach (state_of c).

Lemma take_sound c e rest c' : sound c -> take c e rest = Some c' ->
  sound c' /\ keeps (state_of c) (state_of c').
Proof.
  assert (K : forall c c', sound c -> runs c c' -> sound c' /\ keeps (state_of c) (state_of c')).
  { intros a a' [_ R] [H I]. split; [split; [exact I | eapply Next; eassumption] |].
    apply step_keeps, H. }
  assert (L : forall i b g x r a, sound c -> shows size c i b g x r = Some a ->
    sound a /\ keeps (state_of c) (state_of a)).
  { intros i b g x r a S H.
    destruct (shows_sound size plans _ _ _ _ _ _ _ (proj1 S) H) as [H' | ->]; [auto |].
    split; [exact S | apply keeps_refl]. }
  intros S H. assert (G := proj1 S). destruct e; simpl in H; eauto using begins_sound, votes_sound,
    notes_sound, forgets_sound, decides_sound, admits_sound, wins_sound.
  destruct (shows _ _ _ _ _ _ _) as [a|] eqn:T; [|discriminate].
  destruct (L _ _ _ _ _ _ S T) as [Sa Ka].
  destruct (K _ _ Sa (promises_sound size plans _ _ _ _ (proj1 Sa) H)). eauto using keeps_trans.
Qed.

Lemma init_sound : sound c_init.
Proof.
  split; [repeat split; simpl; try discriminate; contradiction |].
  apply Start. repeat split; auto.
Qed.

(** The state after some events. Each acquisition that began with them began after their first. *)
Lemma take_all_sound es rest : forall c c', sound c -> take_all c (es ++ rest) = Some c' ->
  exists a, sound a /\ keeps (state_of c) (state_of a) /\ take_all a rest = Some c' /\
    forall o, In (Begins o) es ->
      exists t, began (state_of a) (N.to_nat o) = Some t /\ now (state_of c) <= t.
Proof.
  induction es as [|e es IH]; simpl; intros c c' S H.
  { exists c. split; [exact S |]. split; [apply keeps_refl |]. split; [exact H | contradiction]. }
  destruct (take c e (es ++ rest)) as [b|] eqn:T; [|discriminate].
  destruct (take_sound _ _ _ _ S T) as [Sb Kb]. destruct (IH b c' Sb H) as (a & Sa & Ka & Ha & Ba).
  exists a. split; [exact Sa |]. split; [eapply keeps_trans; eassumption |]. split; [exact Ha |].
  intros o [-> | Ho].
  - exists (c_now c). split; [|apply le_n]. apply Ka. simpl in T. unfold begins in T.
    destruct (get o (c_began c)); inversion T; subst; simpl. unfold put.
    destruct (Nat.eq_dec (N.to_nat o) (N.to_nat o)); congruence.
  - destruct (Ba o Ho) as (t & Bt & Lt). exists t. split; [exact Bt |].
    exact (Nat.le_trans _ _ _ (proj1 Kb) Lt).
Qed.

(** One of the acquisitions of the event has a lease. *)
Lemma wins_lease c os token c' : wins size c os token = Some c' -> exists o l, In o os /\
  leased (state_of c') l /\ l_owner l = N.to_nat o /\ l_token l = N.to_nat token /\ l_set l = 0 /\
  l_time l = now (state_of c) /\ now (state_of c') = S (now (state_of c)).
Proof.
  induction os as [|o os IH]; simpl; [discriminate |]. intros H.
  assert (Later : wins size c os token = Some c' -> exists o' l, (o = o' \/ In o' os) /\
    leased (state_of c') l /\ l_owner l = N.to_nat o' /\ l_token l = N.to_nat token /\
      l_set l = 0 /\
    l_time l = now (state_of c) /\ now (state_of c') = S (now (state_of c))).
  { intros K. destruct (IH K) as (o' & l & ? & ?). exists o', l. auto. }
  destruct (existsb _ (c_won c)); [auto |].
  destruct (choose _ _ _ _) as [vs|]; [|auto]. inversion H; subst.
  exists o, (lease_of {| cw_owner := o; cw_token := token; cw_votes := vs; cw_time := c_now c |}).
  simpl. unfold add. auto 10.
Qed.
End Sound.

(** What coqc computes decides whether there is such a state. *)
Lemma none_refused t : first_refused t = 0%N -> exists c, accepted t = Some c.
Proof.
  unfold first_refused, accepted. destruct (N.eqb (size t) 0); [discriminate |].
  assert (K : forall es c k, k <> 0%N -> refused (size t) (plans t) c k es = 0%N ->
    exists c', take_all (size t) (plans t) c es = Some c').
  { induction es as [|e es IH]; simpl; intros c k Z H; [eauto |].
    destruct (take _ _ c e es); [eapply IH; [|exact H]; lia | contradiction]. }
  apply K. discriminate.
Qed.

(** An accepted trace leads to a state that the protocol reaches. *)
Theorem accepted_is_reached t : first_refused t = 0%N -> exists c, accepted t = Some c /\
  reach (E := one_set (size t)) (state_of (size t) (plans t) c).
Proof.
  intros N. destruct (none_refused t N) as (c & H). exists c. split; [exact H |].
  unfold accepted in H. destruct (N.eqb_spec (size t) 0) as [Z | Z]; [discriminate |].
  rewrite <- (app_nil_r (events t)) in H.
  destruct (take_all_sound _ _ Z _ _ _ _ (init_sound _ _) H) as (a & [_ R] & _ & K & _).
  inversion K; subst. exact R.
Qed.

(** So tokens grow in each accepted trace: of two wins, the second has the higher token if all
    acquisitions that may have won it began after the first. *)
Theorem accepted_tokens_grow t before owners token between owners' token' after :
  first_refused t = 0%N ->
  events t = before ++ Wins owners token :: between ++ Wins owners' token' :: after ->
  (forall o, In o owners' -> In (Begins o) between) ->
  (token < token')%N.
Proof.
  intros N E Begun. destruct (none_refused t N) as (c & H). unfold accepted in H. destruct (N.eqb_spec (size t) 0) as [Z | Z]; [discriminate |].
  rewrite E in H. destruct (take_all_sound _ _ Z _ _ _ _ (init_sound _ _) H)
    as (a & Sa & _ & Ha & _).
  simpl in Ha. destruct (wins _ a owners token) as [a'|] eqn:Wa; [|discriminate].
  destruct (take_sound _ _ Z a (Wins owners token) [] a' Sa Wa) as [Sa' _].
  destruct (take_all_sound _ _ Z _ _ _ _ Sa' Ha) as (b & Sb & Kb & Hb & Bb).
  simpl in Hb. destruct (wins _ b owners' token') as [b'|] eqn:Wb; [|discriminate].
  destruct (take_sound _ _ Z b (Wins owners' token') [] b' Sb Wb) as [[_ R] (_ & Kb1 & Kb2)].
  destruct (wins_lease _ (plans t) _ _ _ _ Wa) as (o & l & Ho & Ll & Ol & Tl & Sl & Al & Na).
  destruct (wins_lease _ (plans t) _ _ _ _ Wb) as (o' & l' & Ho' & Ll' & Ol' & Tl' & Sl' & _).
  destruct (Bb o' (Begun o' Ho')) as (time & Bt & Lt).
  assert (l_token l < l_token l'); [|lia].
  eapply (tokens_grow (E := one_set (size t))) with (O := 0) (x := 0) (t := time);
    [exact R | apply Kb2, Kb, Ll | exact Ll' | left; congruence | left; congruence
    | reflexivity | reflexivity | rewrite Ol'; apply Kb1, Bt | lia].
Qed.
