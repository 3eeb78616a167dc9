(** * Why a readmission knows enough: inheritance and cover *)

From Fenced Require Export Origin.
Require Import Arith Lia.

Section Readmission.
Context {E : Setting}.

(** What a decision replaces at a node of its quorum: the incarnation that promised. A first start
    raises it to the entry that it nominates. *)
Definition stands (d : decision) (n : node) : entry :=
  if d_first d
  then match d_nominated d n with Some e => e | None => (0, 0) end
  else promise_entry (d_source d n).

(** Both kinds of decisions rest on promises of a quorum. *)
Lemma sources s : reach s -> forall d n, decided s d -> d_quorum d n ->
  promised s (d_source d n) /\ node_of (p_inc (d_source d n)) = n /\ set_of n = d_set d /\
  p_time (d_source d n) < d_time d /\ snd (stands d n) = p_inc (d_source d n) /\
  (forall k, p_nominated (d_source d n) k = d_nominated d k) /\
  p_highest (d_source d n) <= d_floor d.
Proof.
  intros R d n D Q. unfold stands. destruct (d_first d) eqn:F.
  - pose proof (decision_starts s R d D F) as A.
    assert (N : set_of n = d_set d) by (eapply quorum_members; [apply (f_quorum s d A) | auto]).
    destruct (f_source s d A n N) as (P & O & T).
    destruct (d_nominated d n) as [e |] eqn:Ne; [| destruct (f_all s d A n N Ne)].
    repeat split; auto using (f_round s d A n N), (f_floor s d A n N).
    apply (own_name _ (promise_accepted s R _ P)). rewrite O, (f_round s d A n N). exact Ne.
  - pose proof (decision_readmits s R d D F) as A. destruct (r_source s d A n Q) as (P & O & _ & T).
    repeat split; auto using (r_round s d A n Q), (r_floor s d A n Q).
    eapply quorum_members; [apply (r_quorum s d A) | auto].
Qed.

Lemma is_quorum s : reach s -> forall d, decided s d -> quorum (d_set d) (d_quorum d).
Proof.
  intros R d D. destruct (d_first d) eqn:F;
    [apply (f_quorum s d (decision_starts s R d D F)) | apply (r_quorum s d (decision_readmits s R d D F))].
Qed.

(** Decision [d'] knows all that [d] nominated. *)
Definition knows_all (d : decision) (r : roster) := forall n e,
  set_of n = d_set d -> d_nominated d n = Some e -> upto e (r n).
Definition inherits (d d' : decision) := knows_all d (d_roster d') /\
  forall n e e', set_of n = d_set d -> d_nominated d n = Some e -> d_nominated d' n = Some e' ->
  upto e e'.

(** It is enough that one of its sources knows it: ADMIT takes the rosters of the sources over, and
    PROMISE lowers no entry. *)
Lemma one_source_knows s : reach s -> forall d d' q, decided s d' -> d_quorum d' q ->
  d_set d = d_set d' -> knows_all d (p_roster (d_source d' q)) -> inherits d d'.
Proof.
  intros R d d' q D Q S K. destruct (sources s R d' q D Q) as (P & _ & _ & _ & _ & N & _).
  pose proof (promise_accepted s R _ P) as A.
  assert (Nom : forall n e e', set_of n = d_set d -> d_nominated d n = Some e ->
    d_nominated d' n = Some e' -> upto e e').
  { intros n e e' Sn He He'. eapply upto_trans; [apply (K n e); auto |].
    apply (not_lowered _ A). rewrite N. exact He'. }
  split; auto. intros n e Sn He. destruct (d_first d') eqn:F.
  - pose proof (decision_starts s R d' D F) as B.
    destruct (d_nominated d' n) as [e' |] eqn:Ne; [| destruct (f_all s d' B n); congruence].
    eapply upto_trans; [eapply Nom; eauto | apply (f_roster s d' B); auto].
  - eapply upto_trans; [apply (K n e); auto | apply (r_roster s d' (decision_readmits s R d' D F) q Q)].
Qed.

(** A first start nominates all nodes, so its nominations are enough. *)
Lemma nominations_know s : reach s -> forall d d', decided s d' -> d_first d' = true ->
  d_set d = d_set d' ->
  (forall n e e', set_of n = d_set d -> d_nominated d n = Some e -> d_nominated d' n = Some e' ->
    upto e e') -> inherits d d'.
Proof.
  intros R d d' D F S Nom. split; auto. intros n e Sn He.
  pose proof (decision_starts s R d' D F) as B.
  destruct (d_nominated d' n) as [e' |] eqn:Ne; [| destruct (f_all s d' B n); congruence].
  eapply upto_trans; [eapply Nom; eauto | apply (f_roster s d' B); auto].
Qed.

(** A source of [d] cannot know a later entry than the one that stands: that quorum of promises
    would not be consistent, or the first start would nominate an earlier one. *)
Lemma sources_are_latest s : reach s -> forall d p m e, decided s d -> d_quorum d p ->
  d_quorum d m -> earlier (stands d m) e -> upto e (p_roster (d_source d p) m) ->
  p = m /\ d_first d = false.
Proof.
  intros R d p m e D Qp Qm L K. unfold stands in L. destruct (d_first d) eqn:F.
  - exfalso. pose proof (decision_starts s R d D F) as A.
    destruct (sources s R d m D Qm) as (_ & _ & Sm & _).
    destruct (sources s R d p D Qp) as (P & _ & _ & _ & _ & N & _).
    destruct (d_nominated d m) as [x |] eqn:Nm; [| destruct (f_all s d A m Sm Nm)].
    apply (earlier_not_upto _ _ L). eapply upto_trans; [exact K |].
    apply (not_lowered _ (promise_accepted s R _ P)). rewrite N. exact Nm.
  - destruct (Nat.eq_dec p m) as [-> | Ne]; auto. exfalso.
    apply (r_consistent s d (decision_readmits s R d D F) p m Qp Qm Ne).
    eapply earlier_upto; eauto.
Qed.

(** ** Inheritance

    If [d2] nominates a later incarnation of a node than the one that [d1] rests on, then [d2] knows
    all that [d1] nominated. Take a node [p] of both quorums, and the promises [a] for [d1] and [b]
    for [d2] there. One incarnation has given both, or an earlier decision nominated one of the two
    incarnations. *)
Lemma inheritance s : reach s -> forall k d1 d2, d_time d1 + d_time d2 < k ->
  decided s d1 -> decided s d2 -> d_set d1 = d_set d2 ->
  forall m e2, d_quorum d1 m -> d_nominated d2 m = Some e2 ->
  snd (stands d1 m) <> snd e2 -> earlier (stands d1 m) e2 -> inherits d1 d2.
Proof.
  intros R. induction k as [| k IH]; [lia |].
  intros d1 d2 Hk D1 D2 S m e2 Qm Em Ne L.
  assert (Q1 := is_quorum s R d1 D1). assert (Q2 := is_quorum s R d2 D2). rewrite <- S in Q2.
  destruct (quorums_meet _ _ _ Q1 Q2) as (p & Qp1 & Qp2).
  destruct (sources s R d1 p D1 Qp1) as (Pa & Oa & Sp & Ta & Ia & Na & _).
  destruct (sources s R d2 p D2 Qp2) as (Pb & Ob & _ & Tb & Ib & Nb & _).
  destruct (sources s R d1 m D1 Qm) as (Pm & Om & Sm & _ & Im & Nm & _).
  set (a := d_source d1 p) in *. set (b := d_source d2 p) in *.
  pose proof (promise_accepted s R _ Pa) as Aa. pose proof (promise_accepted s R _ Pb) as Ab.
  (* A source of [d1] that knows [e2] is the one at [m]. *)
  assert (Known : upto e2 (p_roster a m) -> p = m /\ d_first d1 = false)
    by (intros K; eapply sources_are_latest; eauto).
  (* If a first start nominates at least what [d2] does, nothing later stands at [m]. *)
  assert (Above : d_first d1 = true ->
    (forall n e e', d_nominated d2 n = Some e -> d_nominated d1 n = Some e' -> upto e e') -> False).
  { intros F K. unfold stands in L. rewrite F in L. pose proof (decision_starts s R d1 D1 F) as A1.
    destruct (d_nominated d1 m) as [x |] eqn:Nx; [| destruct (f_all s d1 A1 m Sm Nx)].
    exact (earlier_not_upto _ _ L (K m e2 x Em Nx)). }
  (* [b] is later than what stands in [d1]: a decision between them began it. *)
  assert (Later_b : p_votes b = true -> p_inc a <> p_inc b -> earlier (stands d1 p) (promise_entry b) ->
    inherits d1 d2).
  { intros V Nab Lab. destruct (promise_origin s R b Pb V) as (d3 & D3 & (S3 & N3) & T3 & _ & R3).
    rewrite Ob in S3, N3.
    destruct (IH d1 d3) with (m := p) (e2 := promise_entry b) as (K & _); auto;
      try congruence; try lia; [rewrite Ia; auto |].
    apply (one_source_knows s R d1 d2 p); auto. intros n e Sn He.
    eapply upto_trans; [apply (K n e); auto | apply R3]. }
  (* [a] is later than what stands in [d2]: impossible, as [a] would know [e2]. *)
  assert (Later_a : p_votes a = true -> p_inc a <> p_inc b -> earlier (stands d2 p) (promise_entry a) ->
    False).
  { intros V Nab Lab. destruct (promise_origin s R a Pa V) as (d3 & D3 & (S3 & N3) & T3 & _ & R3).
    rewrite Oa in S3, N3.
    destruct (IH d2 d3) with (m := p) (e2 := promise_entry a) as (K & K'); auto;
      try congruence; try lia; [rewrite Ib; auto |].
    destruct Known as (-> & F).
    { eapply upto_trans; [apply (K m e2); auto; congruence | apply R3]. }
    unfold stands in L; rewrite F in L. fold a in L.
    apply (earlier_not_upto _ _ L). apply (K' m e2); auto; congruence. }
  destruct (Nat.eq_dec (p_inc a) (p_inc b)) as [Same | Diff].
  - destruct (lt_eq_lt_dec (p_time a) (p_time b)) as [[T | T] | T].
    + (* [b] followed [a], and knows what [a] promised. *)
      apply (one_source_knows s R d1 d2 p); auto. intros n e Sn He.
      apply (promise_then_promise s R a b); auto. rewrite Na; exact He.
    + (* The same promise: then the rounds are the same, and [e2] is an own name. *)
      exfalso. assert (Eab : a = b) by (apply (one_promise_at_a_time s R); auto).
      apply Ne. rewrite Im. symmetry. apply (own_name _ (promise_accepted s R _ Pm)).
      rewrite Om, Nm, <- Na, Eab, Nb. exact Em.
    + (* [a] followed [b], and knows [e2]. *)
      exfalso. destruct Known as (-> & F).
      { apply (promise_then_promise s R b a); auto. rewrite Nb; exact Em. }
      apply Ne. rewrite Im. fold a. rewrite Same. symmetry. apply (own_name _ Ab).
      rewrite Ob, Nb. exact Em.
  - assert (Voter : forall d, decided s d -> d_first d = false -> d_quorum d p ->
      p_votes (d_source d p) = true).
    { intros d D F Q. apply (r_source s d (decision_readmits s R d D F) p Q). }
    assert (Nominee : forall d, decided s d -> d_first d = true -> d_quorum d p ->
      d_nominated d p = Some (stands d p)).
    { intros d D F Q. unfold stands. rewrite F. destruct (sources s R d p D Q) as (_ & _ & Sd & _).
      pose proof (f_all s d (decision_starts s R d D F) p Sd). destruct (d_nominated d p); congruence. }
    assert (Unvoted : forall d, decided s d -> d_quorum d p -> p_votes (d_source d p) = false ->
      promise_entry (d_source d p) = stands d p).
    { intros d D Q V. destruct (d_first d) eqn:F; [| rewrite (Voter d D F Q) in V; discriminate].
      destruct (sources s R d p D Q) as (P & O & _ & _ & _ & N & _).
      pose proof (without_vote _ (promise_accepted s R _ P) V) as W.
      rewrite O, N, (Nominee d D F Q) in W. congruence. }
    assert (Order_b : earlier (stands d1 p) (promise_entry b) \/ earlier (promise_entry b) (stands d1 p)).
    { rewrite (surjective_pairing (stands d1 p)), Ia. apply one_is_later; auto. }
    assert (Order_a : earlier (stands d2 p) (promise_entry a) \/ earlier (promise_entry a) (stands d2 p)).
    { rewrite (surjective_pairing (stands d2 p)), Ib. apply one_is_later; auto. }
    destruct Order_b as [Lb | Lb].
    + destruct (p_votes b) eqn:Vb; auto. pose proof (Unvoted d2 D2 Qp2 Vb) as Eb. fold b in Eb.
      assert (F2 : d_first d2 = true)
        by (destruct (d_first d2) eqn:F; auto; unfold b in Vb; rewrite (Voter d2 D2 F Qp2) in Vb; discriminate).
      destruct Order_a as [La | La].
      * destruct (p_votes a) eqn:Va; [exfalso; auto |].
        pose proof (Unvoted d1 D1 Qp1 Va) as Ea. fold a in Ea. exfalso.
        unfold earlier in *. rewrite Eb in Lb. rewrite Ea in La. lia.
      * apply (nominations_know s R); auto. intros n e e' Sn He He'.
        apply (f_promises s d2 (decision_starts s R d2 D2 F2) a (stands d2 p)) with (n := n); auto;
          try (rewrite Oa; auto); [congruence | rewrite Na; auto].
    + destruct (d_first d1) eqn:F1.
      * exfalso. apply Above; auto. intros n e e' He He'.
        apply (f_promises s d1 (decision_starts s R d1 D1 F1) b (stands d1 p)) with (n := n); auto;
          try (rewrite Ob; auto); [congruence | rewrite Nb; auto].
      * pose proof (Voter d1 D1 F1 Qp1) as Va. fold a in Va.
        destruct Order_a as [La | La]; [exfalso; auto |].
        destruct (d_first d2) eqn:F2.
        -- apply (nominations_know s R); auto. intros n e e' Sn He He'.
           apply (f_promises s d2 (decision_starts s R d2 D2 F2) a (stands d2 p)) with (n := n); auto;
             try (rewrite Oa; auto); [congruence | rewrite Na; auto].
        -- exfalso. unfold stands in Lb, La. rewrite F1 in Lb. rewrite F2 in La.
           fold a in Lb; fold b in La. unfold earlier in *. lia.
Qed.

(** ** Cover

    If a quorum has voted for [high], and [d] nominates a later incarnation of one of the voters,
    then [high] is not above the floor of [d], and one of the votes precedes [d]. Take a node of
    both quorums, and its promise for [d]. *)
Lemma cover s : reach s -> forall k d, d_time d < k -> decided s d ->
  forall (Q : node -> Prop) f high, quorum (d_set d) Q -> consistent_votes Q f ->
  (forall n, Q n -> voted s (f n) /\ node_of (v_inc (f n)) = n /\ v_high (f n) = high) ->
  forall n e, Q n -> d_nominated d n = Some e -> v_inc (f n) <> snd e ->
  earlier (vote_entry (f n)) e ->
  exists m, Q m /\ v_time (f m) < d_time d /\ high <= d_floor d.
Proof.
  intros R. induction k as [| k IH]; [lia |]. intros d Hk D Q f high HQ C V n e Qn En Ne L.
  destruct (quorums_meet _ _ _ (is_quorum s R d D) HQ) as (m & Qd & Qm).
  destruct (sources s R d m D Qd) as (P & O & Sm & T & I & N & Fl).
  destruct (V m Qm) as (Vm & Om & Hm). destruct (V n Qn) as (Vn & On & _).
  set (p := d_source d m) in *. set (v := f m) in *.
  (* A vote that knows [e] is the one at [n]. *)
  assert (Known : upto e (v_roster v n) -> m = n).
  { intros K. destruct (Nat.eq_dec m n) as [| Nmn]; auto. exfalso.
    apply (C m n Qm Qn Nmn). eapply earlier_upto; eauto. }
  destruct (Nat.eq_dec (p_inc p) (v_inc v)) as [Same | Diff].
  - destruct (le_lt_dec (v_time v) (p_time p)) as [Tv | Tv].
    + (* The vote preceded the promise, which answered with its number at least. *)
      exists m. pose proof (vote_then_promise s R v p Vm P (eq_sym Same) Tv).
      repeat split; auto; unfold v in *; lia.
    + (* The vote followed the promise, and knows [e]. *)
      exfalso. assert (m = n) as ->.
      { apply Known. apply (promise_then_vote s R p v); auto. rewrite N; exact En. }
      apply Ne. fold v. rewrite <- Same. symmetry.
      apply (own_name _ (promise_accepted s R _ P)). rewrite O, N; exact En.
  - assert (Order : earlier (stands d m) (vote_entry v) \/ earlier (vote_entry v) (stands d m)).
    { rewrite (surjective_pairing (stands d m)), I. apply one_is_later; auto. }
    destruct Order as [Lv | Lv].
    + (* A later incarnation has voted. Its decision inherited [e]. *)
      exfalso. destruct (vote_origin s R v Vm) as (d3 & D3 & (S3 & N3) & _ & _ & R3).
      rewrite Om in S3, N3.
      destruct (inheritance s R (S (d_time d + d_time d3)) d d3) with (m := m) (e2 := vote_entry v)
        as (K & K'); auto; try congruence; [rewrite I; auto |].
      assert (m = n) as ->.
      { apply Known. eapply upto_trans; [apply (K n e); auto | apply R3].
        eapply quorum_members; eauto. }
      apply (earlier_not_upto _ _ L). fold v. apply (K' n e); auto.
    + destruct (d_first d) eqn:F.
      * (* An earlier incarnation has voted, and [d] is a first start. *)
        exists m. pose proof (decision_starts s R d D F) as A.
        assert (Nm : d_nominated d m = Some (stands d m)).
        { unfold stands. rewrite F. pose proof (f_all s d A m Sm). destruct (d_nominated d m); congruence. }
        destruct (f_votes s d A v (stands d m)) as (Tv & Hv); auto; try (rewrite Om; auto); [congruence |].
        repeat split; auto. unfold v in *; lia.
      * (* An earlier incarnation has voted. The decision that began the promising one covers it. *)
        pose proof (decision_readmits s R d D F) as A. destruct (r_source s d A m Qd) as (_ & _ & Vp & _).
        destruct (promise_origin s R p P Vp) as (d3 & D3 & (S3 & N3) & T3 & F3 & _).
        rewrite O in S3, N3. unfold stands in Lv. rewrite F in Lv. fold p in Lv.
        destruct (IH d3) with (Q := Q) (f := f) (high := high) (n := m) (e := promise_entry p)
          as (q & Qq & Tq & Hq); auto; try lia; [congruence |].
        exists q. repeat split; auto; lia.
Qed.

End Readmission.
