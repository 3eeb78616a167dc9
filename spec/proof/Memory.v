(** * One incarnation: its memory only grows, and orders its votes and promises *)

From Fenced Require Export Protocol.
Require Import Arith Lia.

(** Proofs along a run: the first state has no messages, and each action adds one at most. *)
Ltac along_the_run R :=
  induction R as [s I | s s' R IH St];
  [destruct I as (I1 & I2 & I3 & I4 & I5 & I6 & I7 & I8 & I9) |].
Ltac cases := simpl in *; unfold add, put in *;
  repeat match goal with
  | H : _ \/ voted _ _ |- _ => destruct H as [-> | H]; simpl in *
  | H : _ \/ promised _ _ |- _ => destruct H as [-> | H]; simpl in *
  | H : _ \/ decided _ _ |- _ => destruct H as [-> | H]; simpl in *
  | H : _ \/ won _ _ |- _ => destruct H as [-> | H]; simpl in *
  | H : _ \/ leased _ _ |- _ => destruct H as [-> | H]; simpl in *
  | H : context [Nat.eq_dec ?a ?b] |- _ => destruct (Nat.eq_dec a b); subst; simpl in *
  | |- context [Nat.eq_dec ?a ?b] => destruct (Nat.eq_dec a b); subst; simpl in *
  | H : Some _ = Some _ |- _ => injection H as H; subst; simpl in *
  | H : Some _ = None |- _ => discriminate H
  | H : None = Some _ |- _ => discriminate H
  end.

(** [K] says that old messages are older than now: a new one is not older than an old one. *)
Ltac too_old K :=
  solve [exfalso; match goal with H : _ |- _ => pose proof (K _ H); simpl in *; lia end].

Section Memory.
Context {E : Setting}.

(** ** Messages stay, and each has a time of its own *)

Lemma messages_stay s s' : step s s' ->
  now s' = S (now s) /\ (forall v, voted s v -> voted s' v) /\
  (forall p, promised s p -> promised s' p) /\ (forall d, decided s d -> decided s' d) /\
  (forall w, won s w -> won s' w) /\ (forall l, leased s l -> leased s' l).
Proof. destruct 1; simpl; unfold add; intuition. Qed.

Lemma vote_time s : reach s -> forall v, voted s v -> v_time v < now s.
Proof.
  intros R; along_the_run R; intros v H; [destruct (I5 v H) |].
  destruct St; cases; try (specialize (IH _ H)); lia.
Qed.

Lemma promise_time s : reach s -> forall p, promised s p -> p_time p < now s.
Proof.
  intros R; along_the_run R; intros p H; [destruct (I6 p H) |].
  destruct St; cases; try (specialize (IH _ H)); lia.
Qed.

Lemma decision_time s : reach s -> forall d, decided s d -> d_time d < now s.
Proof.
  intros R; along_the_run R; intros d H; [destruct (I7 d H) |].
  destruct St; cases; try (specialize (IH _ H)); lia.
Qed.

Lemma win_time s : reach s -> forall w, won s w -> w_time w < now s.
Proof.
  intros R; along_the_run R; intros w H; [destruct (I8 w H) |].
  destruct St; cases; try (specialize (IH _ H)); lia.
Qed.

Lemma one_vote_at_a_time s : reach s ->
  forall v v', voted s v -> voted s v' -> v_time v = v_time v' -> v = v'.
Proof.
  intros R; along_the_run R; intros v v' H H' T; [destruct (I5 v H) |].
  pose proof (vote_time s R) as K. destruct St; cases; auto; too_old K.
Qed.

Lemma one_promise_at_a_time s : reach s ->
  forall p p', promised s p -> promised s p' -> p_time p = p_time p' -> p = p'.
Proof.
  intros R; along_the_run R; intros p p' H H' T; [destruct (I6 p H) |].
  pose proof (promise_time s R) as K. destruct St; cases; auto; too_old K.
Qed.

(** ** Memory only grows *)

(** Each later number of resource [x] is above this one, even if the name is forgotten meanwhile. *)
Definition sure m x := Nat.min (bound m x) (highest m).

Definition grown (m m' : mem) :=
  (forall x, sure m x <= sure m' x) /\ highest m <= highest m' /\ covered (knows m) (knows m') /\
  (votes m = true -> votes m' = true) /\
  (forall B, sealed_for m = Some B -> sealed_for m' = Some B).

Lemma grown_refl m : grown m m.
Proof. unfold grown; auto. Qed.

(** Votes write numbers above those that they read. The other scripts only raise them, and a
    forgotten name counts with its highest possible number. A promise takes no earlier entry. *)
Lemma memory_grows s s' i m : step s s' -> memory s i = Some m ->
  exists m', memory s' i = Some m' /\ grown m m'.
Proof.
  intros St M. destruct St; cases; try congruence;
    try (exists m; split; [auto | apply grown_refl]; fail);
    match goal with H : memory s _ = Some ?m0, K : memory s _ = Some ?m1 |- _ =>
      replace m1 with m0 in * by congruence; clear K end;
    (eexists; split; [reflexivity |]); unfold grown, sure; simpl; repeat split; auto; try congruence;
    try (intros x; repeat match goal with H : forall x : resource, _ |- _ => specialize (H x) end;
         try destruct (wants o x); try destruct (names x); lia); try lia.
  - intros n. destruct (nom n) eqn:N; auto.
  - intros C HC. match goal with Same : forall C, _ -> C = B |- _ => rewrite (Same C HC) end. reflexivity.
Qed.

(** ** What an incarnation remembers of its votes and promises *)

Lemma vote_is_remembered s : reach s -> forall v, voted s v ->
  exists m, memory s (v_inc v) = Some m /\ votes m = true /\ v_high v <= highest m /\
    forall x, wants (v_owner v) x = true -> v_high v <= sure m x.
Proof.
  intros R; along_the_run R; intros v H; [destruct (I5 v H) |].
  assert (Old : voted s v -> exists m, memory s' (v_inc v) = Some m /\ votes m = true /\
    v_high v <= highest m /\ forall x, wants (v_owner v) x = true -> v_high v <= sure m x).
  { intros K. destruct (IH v K) as (m & M & V & Hi & Lo).
    destruct (memory_grows s s' _ m St M) as (m' & M' & G1 & G2 & _ & G3 & _).
    exists m'. repeat split; auto; [lia |]. intros x W. specialize (Lo x W). specialize (G1 x). lia. }
  destruct St; simpl in *; unfold add in *; auto. destruct H as [-> | H]; auto.
  cases; [| congruence]. eexists; split; [reflexivity |]. unfold sure; simpl.
  repeat split; auto; [lia |]. intros x W. rewrite W. lia.
Qed.

Lemma promise_is_remembered s : reach s -> forall p, promised s p ->
  exists m, memory s (p_inc p) = Some m /\
    (forall n e, p_nominated p n = Some e -> upto e (knows m n)) /\
    (forall B, p_sealed_for p = Some B -> sealed_for m = Some B).
Proof.
  intros R; along_the_run R; intros p H; [destruct (I6 p H) |].
  assert (Old : promised s p -> exists m, memory s' (p_inc p) = Some m /\
    (forall n e, p_nominated p n = Some e -> upto e (knows m n)) /\
    (forall B, p_sealed_for p = Some B -> sealed_for m = Some B)).
  { intros K. destruct (IH p K) as (m & M & N & S).
    destruct (memory_grows s s' _ m St M) as (m' & M' & _ & _ & G1 & _ & G2).
    exists m'. repeat split; auto. intros n e En. eapply upto_trans; [apply N; eauto | apply G1]. }
  destruct St; simpl in *; unfold add in *; auto; destruct H as [-> | H]; auto; cases;
    try congruence; (eexists; split; [reflexivity |]); simpl; split; intros; auto; try discriminate.
  rewrite H. auto.
Qed.

(** ** The order of votes and promises of one incarnation *)

(** Later votes for the same resource are for higher numbers. *)
Lemma vote_then_vote s : reach s -> forall v v' x, voted s v -> voted s v' ->
  v_inc v = v_inc v' -> v_time v < v_time v' ->
  wants (v_owner v) x = true -> wants (v_owner v') x = true -> v_high v < v_low v'.
Proof.
  intros R; along_the_run R; intros v v' x H H' Same T W W'; [destruct (I5 v H) |].
  pose proof (vote_time s R) as K. destruct St; cases; try (eapply IH; eassumption); auto; try lia; try too_old K.
  destruct (vote_is_remembered s R v) as (m0 & M & _ & _ & Hi); auto.
  replace m0 with m in * by congruence. specialize (Hi x W). unfold sure in Hi.
  match goal with New : forall x, _ -> bound m x < low |- _ => specialize (New x W') end. lia.
Qed.

(** A promise answers with the highest number that the incarnation gave, over all resources. *)
Lemma vote_then_promise s : reach s -> forall v p, voted s v -> promised s p ->
  v_inc v = p_inc p -> v_time v <= p_time p -> v_high v <= p_highest p.
Proof.
  intros R; along_the_run R; intros v p H H' Same T; [destruct (I5 v H) |].
  pose proof (vote_time s R) as K. pose proof (promise_time s R) as K'.
  destruct St; cases; try (eapply IH; eassumption); auto; try too_old K';
    destruct (vote_is_remembered s R v) as (m0 & M & _ & Hi & _); auto;
    replace m0 with m in * by congruence; auto.
Qed.

(** A vote after a promise knows its nominations. *)
Lemma promise_then_vote s : reach s -> forall p v, promised s p -> voted s v ->
  p_inc p = v_inc v -> p_time p < v_time v ->
  forall n e, p_nominated p n = Some e -> upto e (v_roster v n).
Proof.
  intros R; along_the_run R; intros p v H H' Same T; [destruct (I6 p H) |].
  pose proof (vote_time s R) as K. destruct St; cases; try (eapply IH; eassumption); auto; try too_old K.
  destruct (promise_is_remembered s R p) as (m0 & M & Hi & _); auto.
  replace m0 with m in * by congruence; auto.
Qed.

(** So does a promise after a promise. *)
Lemma promise_then_promise s : reach s -> forall p p', promised s p -> promised s p' ->
  p_inc p = p_inc p' -> p_time p < p_time p' ->
  forall n e, p_nominated p n = Some e -> upto e (p_roster p' n).
Proof.
  intros R; along_the_run R; intros p p' H H' Same T; [destruct (I6 p H) |].
  pose proof (promise_time s R) as K. destruct St; cases; try (eapply IH; eassumption); auto; try lia; try too_old K;
    destruct (promise_is_remembered s R p) as (m0 & M & Hi & _); auto;
    replace m0 with m in * by congruence; auto.
Qed.

(** After SEAL, an incarnation does not vote. *)
Lemma no_vote_after_seal s : reach s -> forall p v B, promised s p -> voted s v ->
  p_sealed_for p = Some B -> p_inc p = v_inc v -> v_time v < p_time p.
Proof.
  intros R; along_the_run R; intros p v B H H' Sl Same; [destruct (I6 p H) |].
  pose proof (vote_time s R) as K. destruct St; cases; try (eapply IH; eassumption); auto.
  destruct (promise_is_remembered s R p) as (m0 & M & _ & Hi); auto. specialize (Hi _ Sl).
  congruence.
Qed.

(** Nor does it promise anything. *)
Lemma no_promise_after_seal s : reach s -> forall p p' B n e, promised s p -> promised s p' ->
  p_sealed_for p = Some B -> p_inc p = p_inc p' -> p_nominated p' n = Some e ->
  p_time p' < p_time p.
Proof.
  intros R; along_the_run R; intros p p' B n0 e0 H H' Sl Same N; [destruct (I6 p H) |].
  pose proof (promise_time s R) as K. destruct St; cases; try (eapply IH; eassumption); auto; try discriminate.
  destruct (promise_is_remembered s R p) as (m0 & M & _ & Hi); auto. specialize (Hi _ Sl).
  congruence.
Qed.

(** It is sealed for one set only. *)
Lemma sealed_for_one_set s : reach s -> forall p p' B B', promised s p -> promised s p' ->
  p_inc p = p_inc p' -> p_sealed_for p = Some B -> p_sealed_for p' = Some B' -> B = B'.
Proof.
  intros R; along_the_run R; intros p p' C C' H H' Same Sl Sl'; [destruct (I6 p H) |].
  destruct St; cases; try exact (IH _ _ _ _ H H' Same Sl Sl');
    try reflexivity; try discriminate;
    match goal with K : promised s ?q, N : p_sealed_for ?q = Some ?D |- _ =>
      destruct (promise_is_remembered s R q K) as (m0 & M & _ & Hi); specialize (Hi D N);
      replace m0 with m in * by congruence end; auto; symmetry; auto.
Qed.

End Memory.
