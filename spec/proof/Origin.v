(** * What each message rests on *)

From Fenced Require Export Memory.
Require Import Arith Lia.

Section Origin.
Context {E : Setting}.

(** ** ADMIT: each voter was nominated by a decision *)

(** A decision nominated incarnation [i] under generation [g], on its node. *)
Definition nominates d i g :=
  d_set d = set_of (node_of i) /\ d_nominated d (node_of i) = Some (g, i).

(** Its memory begins at the floor and at the roster of that decision. *)
Lemma memory_origin s : reach s -> forall i m, memory s i = Some m -> votes m = true ->
  exists d, decided s d /\ nominates d i (generation m) /\ d_floor d <= highest m /\
    (forall x, d_floor d <= sure m x) /\ covered (d_roster d) (knows m).
Proof.
  intros R; along_the_run R; intros i m M V; [congruence |].
  assert (Old : forall m0, memory s i = Some m0 -> votes m0 = true -> generation m0 = generation m ->
    grown m0 m -> exists d, decided s' d /\ nominates d i (generation m) /\ d_floor d <= highest m /\
      (forall x, d_floor d <= sure m x) /\ covered (d_roster d) (knows m)).
  { intros m0 M0 V0 G0 (G1 & G2 & G3 & _). destruct (IH i m0 M0 V0) as (d & D & N & Hi & Lo & Ro).
    destruct (messages_stay s s' St) as (_ & _ & _ & HD & _). rewrite G0 in N.
    exists d. repeat split; auto; try apply N; [lia | | eauto].
    intros x. specialize (Lo x). specialize (G1 x). lia. }
  assert (Grown : forall m0, memory s i = Some m0 -> grown m0 m).
  { intros m0 M0. destruct (memory_grows s s' i m0 St M0) as (m1 & M1 & G). congruence. }
  destruct St; cases; try congruence; try (eapply Old; eauto using grown_refl; fail).
  exists d. unfold nominates, sure; simpl. repeat split; auto; try (symmetry; assumption).
  intros x. match goal with H : forall x, d_floor d <= b x |- _ => specialize (H x) end. lia.
Qed.

(** So each vote is for numbers above the floor of such a decision, which precedes the vote. *)
Lemma vote_origin s : reach s -> forall v, voted s v ->
  exists d, decided s d /\ nominates d (v_inc v) (v_gen v) /\ d_time d < v_time v /\
    (forall x, wants (v_owner v) x = true -> d_floor d < v_low v) /\
    covered (d_roster d) (v_roster v).
Proof.
  intros R; along_the_run R; intros v H; [destruct (I5 v H) |].
  destruct (messages_stay s s' St) as (_ & _ & _ & HD & _).
  assert (Old : voted s v -> exists d, decided s' d /\ nominates d (v_inc v) (v_gen v) /\
    d_time d < v_time v /\ (forall x, wants (v_owner v) x = true -> d_floor d < v_low v) /\
    covered (d_roster d) (v_roster v)).
  { intros K. destruct (IH v K) as (d & D & ?). exists d; auto. }
  destruct St; cases; auto.
  destruct (memory_origin s R i m) as (d & D & N & _ & Lo & Ro); auto.
  exists d. pose proof (decision_time s R d D). repeat split; auto; try apply N.
  intros x W. specialize (Lo x). unfold sure in Lo.
  match goal with B : forall x, _ -> bound m x < low |- _ => specialize (B x W) end. lia.
Qed.

(** A promise of a voter answers with that floor at least. *)
Lemma promise_origin s : reach s -> forall p, promised s p -> p_votes p = true ->
  exists d, decided s d /\ nominates d (p_inc p) (p_gen p) /\ d_time d < p_time p /\
    d_floor d <= p_highest p /\ covered (d_roster d) (p_roster p).
Proof.
  intros R; along_the_run R; intros p H V; [destruct (I6 p H) |].
  destruct (messages_stay s s' St) as (_ & _ & _ & HD & _).
  assert (Old : promised s p -> exists d, decided s' d /\ nominates d (p_inc p) (p_gen p) /\
    d_time d < p_time p /\ d_floor d <= p_highest p /\ covered (d_roster d) (p_roster p)).
  { intros K. destruct (IH p K V) as (d & D & ?). exists d; auto. }
  destruct St; cases; auto;
    (destruct (memory_origin s R i m) as (d & D & N & Hi & _ & Ro); auto);
    exists d; pose proof (decision_time s R d D); try rewrite V in *; subst;
    repeat split; auto; try apply N.
Qed.

(** ** What a promise accepts *)

(** PROMISE lowers no entry, and nominates no other incarnation of its own node. *)
Record accepted (p : promise) : Prop := {
  not_lowered : forall n e, p_nominated p n = Some e -> upto (p_roster p n) e;
  own_name : forall e, p_nominated p (node_of (p_inc p)) = Some e -> snd e = p_inc p;
  without_vote : p_votes p = false ->
    p_nominated p (node_of (p_inc p)) = Some (promise_entry p);
  seal_votes : forall B, p_sealed_for p = Some B -> p_votes p = true
}.

Lemma promise_accepted s : reach s -> forall p, promised s p -> accepted p.
Proof.
  intros R; along_the_run R; intros p H; [destruct (I6 p H) |].
  destruct St; cases; auto; constructor; simpl; unfold nobody, promise_entry; simpl; intros;
    auto; try discriminate.
  match goal with F : votes m = false |- _ => rewrite F in *; assumption end.
Qed.

(** ** What a decision rests on *)

Record readmits s (d : decision) : Prop := {
  r_quorum : quorum (d_set d) (d_quorum d);
  r_consistent : consistent_promises (d_quorum d) (d_source d);
  r_source : forall n, d_quorum d n ->
    promised s (d_source d n) /\ node_of (p_inc (d_source d n)) = n /\
    p_votes (d_source d n) = true /\ p_time (d_source d n) < d_time d;
  r_round : forall n, d_quorum d n -> forall k, p_nominated (d_source d n) k = d_nominated d k;
  r_floor : forall n, d_quorum d n -> p_highest (d_source d n) <= d_floor d;
  r_roster : forall n, d_quorum d n -> covered (p_roster (d_source d n)) (d_roster d)
}.

Lemma decision_readmits s : reach s -> forall d, decided s d -> d_first d = false -> readmits s d.
Proof.
  intros R; along_the_run R; intros d H F; [destruct (I7 d H) |].
  pose proof (promise_time s R) as K. destruct (messages_stay s s' St) as (_ & _ & HP & _ & _).
  assert (Old : decided s d -> readmits s' d).
  { intros G. destruct (IH d G F) as [A1 A2 A3 A4 A5 A6]. constructor; auto.
    intros n Q. destruct (A3 n Q) as (P & ?); auto. }
  destruct St; cases; auto; try discriminate.
  constructor; simpl; auto. intros n Q0; repeat split; auto.
Qed.

(** [f_votes] and [f_promises] hold by the assumptions of first starts. *)
Record starts s (d : decision) : Prop := {
  f_all : forall n, set_of n = d_set d -> d_nominated d n <> None;
  f_source : forall n, set_of n = d_set d ->
    promised s (d_source d n) /\ node_of (p_inc (d_source d n)) = n /\
    p_time (d_source d n) < d_time d;
  f_round : forall n, set_of n = d_set d ->
    forall k, p_nominated (d_source d n) k = d_nominated d k;
  f_floor : forall n, set_of n = d_set d -> p_highest (d_source d n) <= d_floor d;
  f_roster : forall n e, d_nominated d n = Some e -> upto e (d_roster d n);
  f_quorum : quorum (d_set d) (d_quorum d);
  f_votes : forall v e, voted s v -> d_quorum d (node_of (v_inc v)) ->
    d_nominated d (node_of (v_inc v)) = Some e -> v_inc v <> snd e -> earlier (vote_entry v) e ->
    v_time v < d_time d /\ v_high v <= d_floor d;
  f_promises : forall p e, promised s p -> d_quorum d (node_of (p_inc p)) ->
    d_nominated d (node_of (p_inc p)) = Some e -> p_inc p <> snd e -> earlier (promise_entry p) e ->
    p_sealed_for p = None /\
    forall n e1 e2, p_nominated p n = Some e1 -> d_nominated d n = Some e2 -> upto e1 e2
}.

Lemma decision_starts s : reach s -> forall d, decided s d -> d_first d = true -> starts s d.
Proof.
  intros R; along_the_run R; intros d H F; [destruct (I7 d H) |].
  pose proof (promise_time s R) as K. pose proof (vote_time s R) as KV.
  destruct (messages_stay s s' St) as (_ & HV & HP & _ & _).
  assert (Old : decided s d -> (forall v e, voted s' v -> voted s v \/
        (d_nominated d (node_of (v_inc v)) = Some e -> d_quorum d (node_of (v_inc v)) ->
         v_inc v <> snd e -> earlier e (vote_entry v))) ->
      (forall p e, promised s' p -> promised s p \/
        (d_nominated d (node_of (p_inc p)) = Some e -> d_quorum d (node_of (p_inc p)) ->
         p_inc p <> snd e -> earlier e (promise_entry p))) -> starts s' d).
  { intros G NV NP. destruct (IH d G F) as [A1 A2 A3 A4 A5 A6 A7 A8]. constructor; auto.
    - intros n Q. destruct (A2 n Q) as (P & ?); auto.
    - intros v e V Q N Ne L. destruct (NV v e V) as [V' | Late]; [eauto |].
      exfalso. apply (earlier_not_upto _ _ L). specialize (Late N Q Ne).
      unfold earlier, upto in *; lia.
    - intros p e P Q N Ne L. destruct (NP p e P) as [P' | Late]; [eauto |].
      exfalso. apply (earlier_not_upto _ _ L). specialize (Late N Q Ne).
      unfold earlier, upto in *; lia. }
  destruct St; cases; auto; try discriminate;
    try (apply Old; auto; intros ? e' K0; cases; auto; right; intros;
         match goal with A : not_replaced _ _ _ |- _ => eapply A; eauto end; fail).
  constructor; simpl; auto; try (split; eauto; fail).
Qed.

(** ** What a win and a lease rest on *)

Record wins s (w : win) : Prop := {
  w_is_quorum : quorum (w_set w) (w_quorum w);
  w_consistent : consistent_votes (w_quorum w) (w_vote w);
  w_votes : forall n, w_quorum w n ->
    voted s (w_vote w n) /\ node_of (v_inc (w_vote w n)) = n /\
    v_owner (w_vote w n) = w_owner w /\ v_time (w_vote w n) < w_time w;
  w_highest : forall n, w_quorum w n -> v_high (w_vote w n) = w_high w;
  w_lowest : forall n, w_quorum w n -> v_low (w_vote w n) <= w_low w
}.

Lemma win_wins s : reach s -> forall w, won s w -> wins s w.
Proof.
  intros R; along_the_run R; intros w H; [destruct (I8 w H) |].
  pose proof (vote_time s R) as K. destruct (messages_stay s s' St) as (_ & HV & _).
  assert (Old : won s w -> wins s' w).
  { intros G. destruct (IH w G) as [A1 A2 A3 A4 A5]. constructor; auto.
    intros n Q. destruct (A3 n Q) as (P & ?); auto. }
  destruct St; cases; auto. constructor; simpl; auto. intros n Q0; repeat split; auto.
Qed.

Lemma one_win_per_owner s : reach s ->
  forall w w', won s w -> won s w' -> w_owner w = w_owner w' -> w = w'.
Proof.
  intros R; along_the_run R; intros w w' H H' O; [destruct (I8 w H) |].
  destruct St; cases; auto; exfalso;
    match goal with A : forall w, won s w -> _ <> _, K : won s _ |- _ => apply (A _ K); auto end.
Qed.

(** A vote is cast after its acquisition began. *)
Lemma began_before s : reach s -> forall o t, began s o = Some t -> t < now s.
Proof.
  intros R; along_the_run R; intros o t H; [congruence |].
  destruct St; cases; try (specialize (IH _ _ H)); lia.
Qed.

Lemma vote_after_begin s : reach s -> forall v, voted s v ->
  exists t, began s (v_owner v) = Some t /\ t < v_time v.
Proof.
  intros R; along_the_run R; intros v H; [destruct (I5 v H) |].
  destruct St; cases; auto; try (destruct (IH v H) as (t & B & L); congruence).
  destruct (began s o) as [t |] eqn:B; [| congruence].
  exists t. split; auto. apply (began_before s R o); auto.
Qed.

End Origin.
