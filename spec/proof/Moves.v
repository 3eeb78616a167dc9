(** * Why tokens grow across a move, and why the old set has ended

    Leases are carried to the next set for mutual exclusion only: nothing here rests on them. *)

From Fenced Require Export Readmission.
Require Import Arith Lia.

Section Moves.
Context {E : Setting}.

(** A quorum of a set has a node. *)
Lemma some_node S Q : quorum S Q -> exists n, Q n.
Proof. intros H. destruct (quorums_meet S Q Q H H) as (n & K & _). exists n; exact K. Qed.

(** ** A sealed quorum ends its set *)

Section Sealed.
Variable s : state.
Hypothesis R : reach s.
Variables (A B : node_set) (f : nat) (Q : node -> Prop) (a : node -> promise).
Hypothesis Sealed : sealed_quorum s A B f Q a.

(** No decision of the set, early or late, nominates a later incarnation than one that was sealed.
    Take a node [p] of both quorums, its answer to SEAL, and its promise [b]. *)
Lemma no_later_nomination : forall k d, d_time d < k -> decided s d -> d_set d = A ->
  forall m e, Q m -> d_nominated d m = Some e -> p_inc (a m) <> snd e ->
  earlier (promise_entry (a m)) e -> False.
Proof.
  destruct Sealed as (HQ & C & Seals). induction k as [| k IH]; [lia |].
  intros d Hk D S m e Qm Em Ne L.
  assert (HD := is_quorum s R d D). rewrite S in HD.
  destruct (quorums_meet _ _ _ HQ HD) as (p & Qp & Dp).
  destruct (sources s R d p D Dp) as (Pb & Ob & _ & Tb & Ib & Nb & _).
  destruct (Seals p Qp) as (Pa & Oa & Sa & _). set (b := d_source d p) in *.
  assert (Known : upto e (p_roster (a p) m) -> p = m).
  { intros K. destruct (Nat.eq_dec p m) as [| Npm]; auto. exfalso.
    apply (C p m Qp Qm Npm). eapply earlier_upto; eauto. }
  destruct (Nat.eq_dec (p_inc (a p)) (p_inc b)) as [Same | Diff].
  - (* It promised before it was sealed, so it knew [e]. *)
    assert (T : p_time b < p_time (a p)).
    { eapply (no_promise_after_seal s R (a p) b); eauto. rewrite Nb; exact Em. }
    assert (p = m) as <-.
    { apply Known. apply (promise_then_promise s R b (a p)); auto. rewrite Nb; exact Em. }
    apply Ne. rewrite Same. symmetry. apply (own_name _ (promise_accepted s R _ Pb)).
    rewrite Ob, Nb; exact Em.
  - assert (Order : earlier (stands d p) (promise_entry (a p)) \/ earlier (promise_entry (a p)) (stands d p)).
    { rewrite (surjective_pairing (stands d p)), Ib. apply one_is_later; auto. }
    pose proof (seal_votes _ (promise_accepted s R _ Pa) _ Sa) as Va.
    destruct Order as [La | La].
    + (* A later incarnation was sealed. Its decision inherited [e]. *)
      destruct (promise_origin s R (a p) Pa Va) as (d3 & D3 & (S3 & N3) & _ & _ & R3).
      rewrite Oa in S3, N3. assert (Sp : set_of p = A) by exact (quorum_members _ Q p HQ Qp).
      destruct (inheritance s R (Datatypes.S (d_time d + d_time d3)) d d3) with (m := p) (e2 := promise_entry (a p))
        as (K & K'); auto; try congruence; [rewrite Ib; auto |].
      assert (Sm : set_of m = d_set d) by (rewrite S; exact (quorum_members _ Q m HQ Qm)).
      assert (p = m) as <-.
      { apply Known. eapply upto_trans; [apply (K m e); auto | apply R3]. }
      apply (earlier_not_upto _ _ L). apply (K' p e); auto.
    + (* An earlier incarnation was sealed. *)
      destruct (d_first d) eqn:F.
      * pose proof (decision_starts s R d D F) as St.
        assert (Np : d_nominated d p = Some (stands d p)).
        { destruct (sources s R d p D Dp) as (_ & _ & Sd & _). unfold stands. rewrite F.
          pose proof (f_all s d St p Sd). destruct (d_nominated d p); congruence. }
        destruct (f_promises s d St (a p) (stands d p)) as (N & _); auto; try (rewrite Oa; auto);
          congruence.
      * destruct (r_source s d (decision_readmits s R d D F) p Dp) as (_ & _ & Vb & _).
        destruct (promise_origin s R b Pb Vb) as (d3 & D3 & (S3 & N3) & T3 & _).
        rewrite Ob in S3, N3. unfold stands in La. rewrite F in La. fold b in La.
        apply (IH d3) with (m := p) (e := promise_entry b); auto; try lia.
        rewrite S3. exact (quorum_members _ Q p HQ Qp).
Qed.

(** No win of the set, however late its votes arrive, is above the highest answer; and one of its
    votes was cast before some node was sealed. *)
Lemma seal_covers_and_ends w : won s w -> w_set w = A ->
  w_high w <= f /\ exists m n, w_quorum w m /\ Q n /\ v_time (w_vote w m) < p_time (a n).
Proof.
  intros W S. pose proof (win_wins s R w W) as [WQ WC WV WH _]. rewrite S in WQ.
  pose proof Sealed as (HQ & C & Seals).
  destruct (quorums_meet _ _ _ HQ WQ) as (m & Qm & Wm).
  destruct (Seals m Qm) as (Pa & Oa & Sa & Fa). destruct (WV m Wm) as (Vm & Om & _ & _).
  pose proof (WH m Wm) as Hm. set (v := w_vote w m) in *.
  destruct (Nat.eq_dec (p_inc (a m)) (v_inc v)) as [Same | Diff].
  - pose proof (no_vote_after_seal s R (a m) v B Pa Vm Sa Same) as T.
    pose proof (vote_then_promise s R v (a m) Vm Pa (eq_sym Same) (Nat.lt_le_incl _ _ T)).
    split; [lia |]. exists m, m. auto.
  - destruct (one_is_later (p_gen (a m)) (v_gen v) _ _ Diff) as [L | L].
    + exfalso. destruct (vote_origin s R v Vm) as (d & D & (Sd & Nd) & _).
      rewrite Om in Sd, Nd.
      apply (no_later_nomination (Datatypes.S (d_time d)) d) with (m := m) (e := vote_entry v); auto.
      rewrite Sd. exact (quorum_members _ Q m HQ Qm).
    + pose proof (seal_votes _ (promise_accepted s R _ Pa) _ Sa) as Va.
      destruct (promise_origin s R (a m) Pa Va) as (d & D & (Sd & Nd) & Td & Fd & _).
      rewrite Oa in Sd, Nd.
      destruct (cover s R (Datatypes.S (d_time d)) d) with (Q := w_quorum w) (f := w_vote w)
        (high := w_high w) (n := m) (e := promise_entry (a m)) as (q & Wq & Tq & Hq); auto.
      { rewrite Sd. replace (set_of m) with A; auto. symmetry. exact (quorum_members _ Q m HQ Qm). }
      { intros n Wn. destruct (WV n Wn) as (? & ? & _). auto. }
      split; [lia |]. exists q, m. repeat split; auto; lia.
Qed.

End Sealed.

Theorem seal_covers s A B f Q a w : reach s -> sealed_quorum s A B f Q a ->
  won s w -> w_set w = A -> w_high w <= f.
Proof. intros R H W S. apply (seal_covers_and_ends s R A B f Q a H w W S). Qed.

(** Each node is sealed for one set, so a set moves to one set. *)
Lemma one_next_set s A B C f g Q P a b : reach s ->
  sealed_quorum s A B f Q a -> sealed_quorum s A C g P b -> B = C.
Proof.
  intros R HB HC. pose proof HB as (HQ & _ & SB). pose proof HC as (HP & _ & SC).
  destruct (quorums_meet _ _ _ HQ HP) as (m & Qm & Pm).
  destruct (SB m Qm) as (Pa & Oa & Sa & _). destruct (SC m Pm) as (Pb & Ob & Sb & _).
  assert (Sm : set_of m = A) by exact (quorum_members _ Q m HQ Qm).
  destruct (Nat.eq_dec (p_inc (a m)) (p_inc (b m))) as [Same | Diff];
    [eapply (sealed_for_one_set s R (a m) (b m)); eauto | exfalso].
  destruct (one_is_later (p_gen (a m)) (p_gen (b m)) _ _ Diff) as [L | L].
  - pose proof (seal_votes _ (promise_accepted s R _ Pb) _ Sb) as V.
    destruct (promise_origin s R (b m) Pb V) as (d & D & (Sd & Nd) & _). rewrite Ob in Sd, Nd.
    apply (no_later_nomination s R A B f Q a HB (S (d_time d)) d) with (m := m) (e := promise_entry (b m));
      auto; congruence.
  - pose proof (seal_votes _ (promise_accepted s R _ Pa) _ Sa) as V.
    destruct (promise_origin s R (a m) Pa V) as (d & D & (Sd & Nd) & _). rewrite Oa in Sd, Nd.
    apply (no_later_nomination s R A C g P b HC (S (d_time d)) d) with (m := m) (e := promise_entry (a m));
      auto; congruence.
Qed.

(** ** From set to set *)

(** [B] waited for a move from [A], and has started. *)
Definition moved s A B :=
  awaits s B = Some A /\ exists d, decided s d /\ d_first d = true /\ d_set d = B.

(** Its start rests on a sealed quorum of [A], since no set starts between PREPARE and the move. *)
Lemma arrival s : reach s -> forall d A, decided s d -> d_first d = true ->
  awaits s (d_set d) = Some A -> exists Q a, sealed_quorum s A (d_set d) (d_floor d) Q a /\
    forall n, Q n -> p_time (a n) < d_time d.
Proof.
  intros R; along_the_run R; intros d A D F W; [destruct (I7 d D) |].
  destruct (messages_stay s s' St) as (_ & _ & HP & _).
  assert (Old : decided s d -> awaits s (d_set d) = Some A -> exists Q a,
    sealed_quorum s' A (d_set d) (d_floor d) Q a /\ forall n, Q n -> p_time (a n) < d_time d).
  { intros D0 W0. destruct (IH d A D0 F W0) as (Q & a & (S1 & S2 & S3) & T). exists Q, a.
    repeat split; auto; try (apply HP); apply S3; auto. }
  destruct St; cases; auto; try discriminate.
  - match goal with H : forall A, awaits s S = Some A -> _ |- _ => destruct (H A W) as (Q & a' & SQ) end.
    exists Q, a'. destruct SQ as (S1 & S2 & S3). repeat split; auto; try apply S3; auto.
    intros n Qn. apply (promise_time s R), S3, Qn.
  - exfalso. match goal with K : forall d, _ -> d_set d <> _ |- _ => apply (K d); auto end.
Qed.

(** Each decision follows a first start of its set, and its floor is not below. *)
Lemma start_of_set s : reach s -> forall k d, d_time d < k -> decided s d ->
  exists d0, decided s d0 /\ d_first d0 = true /\ d_set d0 = d_set d /\
    d_time d0 <= d_time d /\ d_floor d0 <= d_floor d.
Proof.
  intros R. induction k as [| k IH]; [lia |]. intros d Hk D.
  destruct (d_first d) eqn:F; [exists d; auto |].
  pose proof (decision_readmits s R d D F) as A. destruct (some_node _ _ (r_quorum s d A)) as (n & Qn).
  destruct (sources s R d n D Qn) as (P & O & Sn & T & _ & _ & Fl).
  destruct (r_source s d A n Qn) as (_ & _ & V & _).
  destruct (promise_origin s R _ P V) as (d1 & D1 & (S1 & _) & T1 & F1 & _). rewrite O in S1.
  destruct (IH d1) as (d0 & D0 & F0 & S0 & T0 & G0); auto; try lia.
  exists d0. repeat split; auto; try congruence; lia.
Qed.

(** [C] came out of [A], by one move or several. *)
Inductive later_set s : node_set -> node_set -> Prop :=
| Moved A B : moved s A B -> later_set s A B
| Moved_on A B C : moved s A B -> later_set s B C -> later_set s A C.

(** Each decision of [C] follows the start of the set to which [A] moved. *)
Lemma start_of_next s A C : reach s -> later_set s A C -> forall d, decided s d -> d_set d = C ->
  exists d0, decided s d0 /\ d_first d0 = true /\ awaits s (d_set d0) = Some A /\
    d_time d0 <= d_time d /\ d_floor d0 <= d_floor d.
Proof.
  intros R L. induction L as [A B (W & _) | A B C (W & _) L IH]; intros d D S.
  - destruct (start_of_set s R _ d (Nat.lt_succ_diag_r _) D) as (d0 & D0 & F0 & S0 & ?).
    exists d0. rewrite S0, S. auto.
  - destruct (IH d D S) as (d1 & D1 & F1 & W1 & T1 & G1).
    destruct (arrival s R d1 B D1 F1 W1) as (Q & a & (HQ & _ & Seals) & Ta).
    destruct (some_node _ _ HQ) as (n & Qn). destruct (Seals n Qn) as (P & O & Sl & Fl).
    pose proof (seal_votes _ (promise_accepted s R _ P) _ Sl) as V.
    destruct (promise_origin s R _ P V) as (d2 & D2 & (S2 & _) & T2 & F2 & _). rewrite O in S2.
    assert (Sn : set_of n = B) by exact (quorum_members _ Q n HQ Qn).
    destruct (start_of_set s R _ d2 (Nat.lt_succ_diag_r _) D2) as (d0 & D0 & F0 & S0 & T0 & G0).
    specialize (Ta n Qn). exists d0. rewrite S0, S2, Sn. repeat split; auto; lia.
Qed.

(** So each decision of [C] is above all wins of [A], and follows one vote of each. *)
Lemma decision_after_move s A C d w : reach s -> later_set s A C -> decided s d -> d_set d = C ->
  won s w -> w_set w = A ->
  w_high w <= d_floor d /\ exists m, w_quorum w m /\ v_time (w_vote w m) < d_time d.
Proof.
  intros R L D S W SW. destruct (start_of_next s A C R L d D S) as (d0 & D0 & F0 & W0 & T0 & G0).
  destruct (arrival s R d0 A D0 F0 W0) as (Q & a & Sealed & Ta).
  destruct (seal_covers_and_ends s R _ _ _ Q a Sealed w W SW) as (H & m & n & Wm & Qn & T).
  specialize (Ta n Qn). split; [lia |]. exists m. split; auto; lia.
Qed.

(** ** The sets of one lock service are in one line *)

Lemma one_successor s A B C : reach s -> moved s A B -> moved s A C -> B = C.
Proof.
  intros R (W & d & D & F & S) (W' & d' & D' & F' & S'). subst.
  destruct (arrival s R d A D F W) as (Q & a & Sealed & _).
  destruct (arrival s R d' A D' F' W') as (Q' & a' & Sealed' & _).
  eapply one_next_set; eauto.
Qed.

(** [B] is [A], or came out of it. *)
Definition came_out s A B := A = B \/ later_set s A B.

Lemma in_one_line s O A B : reach s -> came_out s O A -> came_out s O B ->
  came_out s A B \/ came_out s B A.
Proof.
  intros R [<- | LA] HB; [left; exact HB |]. revert B HB.
  assert (Next : forall O A B, moved s O A -> came_out s O B -> O = B \/ came_out s A B).
  { clear O A LA. intros O A B M [<- | L]; auto. right.
    destruct L as [O B M' | O B' B M' L]; rewrite (one_successor s O _ _ R M M'); [left | right]; auto. }
  induction LA as [O A M | O A' A M LA IH]; intros B HB.
  - destruct (Next O A B M HB) as [<- | K]; auto. right; right; apply Moved; auto.
  - destruct (Next O A' B M HB) as [<- | K]; auto. right; right; eapply Moved_on; eauto.
Qed.

End Moves.
