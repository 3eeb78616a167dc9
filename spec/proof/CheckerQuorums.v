(** * Wins, decisions and admissions that the checker accepts are steps of the protocol *)

From Fenced Require Export CheckerActions.
Require Import Arith NArith Lia List Bool.
Import ListNotations.

Section Quorums.
Variable size : N.
Variable plans : list (N * list (node * pair)).
Hypothesis size_pos : size <> 0%N.

Notation node_at := (node_at size).
Notation nominee := (nominee size plans).
Notation nominated := (nominated size plans).
Notation state_of := (state_of size plans).
Notation good := (good size).
Notation faithful := (faithful size).
Notation decision_for := (decision_for size plans).
Notation promise_of := (promise_of size plans).

Notation node_of_inc := (node_of_inc size).
Notation nominee_in := (nominee_in size plans).
Notation nominated_some := (nominated_some size plans).
Notation set_at_0 := (set_at_0 size).
Notation set_at := (set_at size).
Notation chosen_quorum := (chosen_quorum size).
Notation enough_nodes := (enough_nodes size).
Notation runs := (runs size plans).
Notation node_at_lt := (node_at_lt size size_pos).
Notation good_memory := (good_memory size).
Notation memory_of := (memory_of size plans).

Lemma not_earlier r f x n : faithful r f -> negb (is_earlier x (at_node r n)) = true ->
  ~ earlier (entry_of x) (f n).
Proof.
  intros [_ F] H L. rewrite negb_true_iff in H. rewrite F in L.
  apply (is_earlier_sound x) in L. congruence.
Qed.

Lemma votes_consistent vs : (forall v, In v vs -> faithful (cv_table v) (cv_roster v)) ->
  (forall x y, In x vs -> In y vs -> v_node size x <> v_node size y ->
     votes_agree size x y = true \/ votes_agree size y x = true) ->
  consistent_votes (fun n => In n (map (v_node size) vs)) (by_node
    (v_node size) vote_of no_vote vs).
Proof.
  intros F T n m Hn Hm Ne.
  destruct (by_node_in (v_node size) vote_of no_vote vs n Hn) as (x & Ix & Nx & ->).
  destruct (by_node_in (v_node size) vote_of no_vote vs m Hm) as (y & Iy & Ny & ->). subst n m.
  apply (not_earlier (cv_table x) _ (cv_gen y, cv_inc y)); [exact (F x Ix) |].
  destruct (T x y Ix Iy Ne) as [H | H]; unfold votes_agree in H; rewrite !andb_true_iff in H;
    apply H.
Qed.

Lemma promises_consistent ps : (forall p, In p ps -> faithful (cp_table p) (cp_roster p)) ->
  (forall x y, In x ps -> In y ps -> p_node size x <> p_node size y ->
     promises_agree size x y = true \/ promises_agree size y x = true) ->
  consistent_promises (fun n => In n (map (p_node size) ps))
    (by_node (p_node size) promise_of no_promise ps).
Proof.
  intros F T n m Hn Hm Ne.
  destruct (by_node_in (p_node size) promise_of no_promise ps n Hn) as (x & Ix & Nx & ->).
  destruct (by_node_in (p_node size) promise_of no_promise ps m Hm) as (y & Iy & Ny & ->).
  subst n m.
  apply (not_earlier (cp_table x) _ (cp_gen y, cp_inc y)); [exact (F x Ix) |].
  destruct (T x y Ix Iy Ne) as [H | H]; unfold promises_agree in H; rewrite !andb_true_iff in H;
    apply H.
Qed.

Lemma votes_apart x y : votes_agree size x y = true -> v_node size x <> v_node size y.
Proof. unfold votes_agree. rewrite !andb_true_iff, negb_true_iff, Nat.eqb_neq. tauto. Qed.
Lemma promises_apart x y : promises_agree size x y = true -> p_node size x <> p_node size y.
Proof. unfold promises_agree. rewrite !andb_true_iff, negb_true_iff, Nat.eqb_neq. tauto. Qed.

Lemma wins_sound c os t c' : good c -> wins size c os t = Some c' -> runs c c'.
Proof.
  intros G. induction os as [|o os IH]; simpl; [discriminate |]. intros H.
  destruct (existsb _ (c_won c)) eqn:New; [auto |].
  destruct (choose _ _ _ _) as [vs|] eqn:C; [|auto]. inversion H; subst; clear H. split; [|exact G].
  destruct (chosen_quorum (v_node size) _ (fun v => node_at_lt (cv_inc v)) votes_apart _ _ C)
    as (Q & I & T).
  assert (K : forall v, In v vs -> In v (c_voted c) /\ cv_owner v = o /\ cv_token v = t).
  { intros v Hv. apply I, filter_In in Hv. rewrite andb_true_iff, !N.eqb_eq in Hv. tauto. }
  assert (At : forall n, In n (map (v_node size) vs) -> exists v, In v vs /\ v_node size v = n /\
    by_node (v_node size) vote_of no_vote vs n = vote_of v) by (intros n Hn; apply by_node_in, Hn).
  apply (Win (state_of c) 0 (N.to_nat o) (N.to_nat t) (N.to_nat t)
    (fun n => In n (map (v_node size) vs)) (by_node (v_node size) vote_of no_vote vs));
    try (intros n Hn; destruct (At n Hn) as (v & Iv & Nv & ->);
      destruct (K v Iv) as (Vv & <- & <-)).
  - exact Q.
  - apply votes_consistent; [|exact T]. intros v Hv. apply G, K, Hv.
  - apply set_of_list_in. eauto.
  - simpl v_inc. rewrite node_of_inc. exact Nv.
  - reflexivity.
  - reflexivity.
  - apply le_n.
  - apply le_n.
  - intros w Hw E. simpl in Hw. apply set_of_list_in in Hw. destruct Hw as (w' & Iw & ->).
    simpl in E.
    apply N2Nat.inj in E. rewrite <- not_true_iff_false in New. apply New.
    apply existsb_exists. exists w'. split; [assumption | apply N.eqb_eq; assumption].
Qed.

Lemma starting_fits c rest round floor : let quorum := starting size plans c rest round floor in
  NoDup quorum /\ forall n, In n quorum ->
    may_start size plans c round floor n = true /\ n < N.to_nat size.
Proof.
  assert (D := NoDup_filter (may_start size plans c round floor) (seq_NoDup (N.to_nat size) 0)).
  assert (F : forall n, In n (filter (may_start size plans c round floor)
    (seq 0 (N.to_nat size))) -> may_start size plans c round floor n = true /\ n < N.to_nat size).
  { intros n Hn. apply filter_In in Hn. destruct Hn as [Hn M]. apply in_seq in Hn.
    split; [exact M | lia]. }
  unfold starting; simpl.
  match goal with |- context [if ?b then _ else _] => destruct b end; split; auto.
  - apply NoDup_filter, D.
  - intros n Hn. apply filter_In in Hn. apply F, Hn.
Qed.

Lemma starts_sound c rest round floor r c' : good c ->
  starts size plans c rest round floor r = Some c' ->
  runs c c'.
Proof.
  unfold starts. intros G H. require H B. split; [|exact G].
  rewrite !andb_true_iff, !forallb_forall, Nat.leb_le in B. destruct B as [[Named Given] Many].
  set (source := filter _ (c_promised c)) in *.
  destruct (starting_fits c rest round floor) as (Apart & Fit).
  set (G0 := starting size plans c rest round floor) in *.
  assert (Node : forall n, set_at n = 0 -> In n (seq 0 (N.to_nat size))).
  { intros n Hn. apply set_at_0 in Hn. apply in_seq. lia. }
  assert (At : forall n, set_at n = 0 -> exists p, In p (c_promised c) /\ cp_round p = round /\
    (cp_highest p <= floor)%N /\ p_node size p = n /\
    by_node (p_node size) promise_of no_promise source n = promise_of p).
  { intros n Hn. apply Node, Given, existsb_exists in Hn. destruct Hn as (p0 & Hp & En).
    apply Nat.eqb_eq in En. destruct (by_node_in (p_node size) promise_of no_promise source n)
      as (p & Ip & Np & Ep); [apply in_map_iff; eauto |].
    apply filter_In in Ip. rewrite andb_true_iff, N.eqb_eq, N.leb_le in Ip.
    exists p. tauto. }
  refine (FirstStart (state_of c) 0 (nominated round) (fun n => In n G0)
    (by_node (p_node size) promise_of no_promise source) (N.to_nat floor) (roster_of r)
    _ _ _ _ _ _ _ _ _ _ _);
    try (intros n Hn; destruct (At n Hn) as (p & Ip & Rp & Fp & Np & ->)).
  - intros n Hn K. apply Node, Named in Hn. unfold Checker.nominated in K.
    destruct (nominee round n); simpl in K; discriminate.
  - apply set_of_list_in. eauto.
  - simpl p_inc. rewrite node_of_inc. exact Np.
  - intros k. simpl. rewrite Rp. reflexivity.
  - simpl. lia.
  - intros n e K. apply nominated_some in K. destruct K as (x & K & ->).
    assert (Hn : n < N.to_nat size).
    { unfold Checker.nominee, Checker.is_node in K. apply Nat.ltb_lt.
      destruct (Nat.ltb n (N.to_nat size)); [reflexivity | discriminate]. }
    apply set_at_0, Node, Named in Hn. rewrite K in Hn. apply is_upto_sound, Hn.
  - discriminate.
  - apply enough_nodes; [exact Apart | intros n Hn; apply Fit, Hn | exact Many].
  - intros v e Hv Gn Ev Ne L. simpl in Hv. apply set_of_list_in in Hv.
    destruct Hv as (v' & Iv & ->).
    simpl v_inc in *. rewrite node_of_inc in *. apply nominated_some in Ev.
    destruct Ev as (x & Ex & ->). apply Fit in Gn. destruct Gn as [Gn _]. unfold may_start in Gn.
    apply andb_true_iff in Gn. destruct Gn as [Gn _]. rewrite forallb_forall in Gn.
    apply Gn in Iv. unfold v_node, is_replaced in Iv. rewrite Nat.eqb_refl, Ex in Iv. simpl in Iv.
    apply orb_true_iff in Iv. destruct Iv as [Iv | Iv]; [|apply N.leb_le in Iv; simpl; lia].
    exfalso. apply negb_true_iff, andb_false_iff in Iv. destruct Iv as [Iv | Iv].
    + apply negb_false_iff, N.eqb_eq in Iv. apply Ne. simpl. congruence.
    + rewrite <- not_true_iff_false in Iv. apply Iv, is_earlier_sound. exact L.
  - intros p e Hp Gn Ep Ne L n e1 e2 E1 E2. simpl in Hp. apply set_of_list_in in Hp.
    destruct Hp as (p' & Ip & ->).
    simpl p_inc in *. rewrite node_of_inc in *. apply nominated_some in Ep.
    destruct Ep as (x & Ex & ->). apply Fit in Gn. destruct Gn as [Gn _]. unfold may_start in Gn.
    apply andb_true_iff in Gn. destruct Gn as [_ Gn]. rewrite forallb_forall in Gn.
    apply Gn in Ip. unfold p_node, is_replaced in Ip. rewrite Nat.eqb_refl, Ex in Ip. simpl in Ip.
    apply orb_true_iff in Ip. destruct Ip as [Ip | Ip].
    + exfalso. apply negb_true_iff, andb_false_iff in Ip. destruct Ip as [Ip | Ip].
      * apply negb_false_iff, N.eqb_eq in Ip. apply Ne. simpl. congruence.
      * rewrite <- not_true_iff_false in Ip. apply Ip, is_earlier_sound. exact L.
    + simpl in E1. apply nominated_some in E1. destruct E1 as (y1 & E1 & ->).
      apply nominated_some in E2. destruct E2 as (y2 & E2 & ->).
      rewrite forallb_forall in Ip. apply nominee_in, Ip in E1. simpl in E1. rewrite E2 in E1.
      apply is_upto_sound, E1.
  - intros p e Hp _ _ _ _. simpl in Hp. apply set_of_list_in in Hp. destruct Hp as (p' & _ & ->).
    reflexivity.
Qed.

Lemma decides_sound c rest round floor r c' : good c ->
  decides size plans c rest round floor r = Some c' ->
  runs c c'.
Proof.
  unfold decides. intros G H. destruct (is_table size r); [|discriminate].
  destruct (choose _ _ _ _) as [ps|] eqn:C; [|eapply starts_sound; eassumption].
  inversion H; subst; clear H. split; [|exact G].
  destruct (chosen_quorum (p_node size) _ (fun p => node_at_lt (cp_inc p)) promises_apart _ _ C)
    as (Q & I & T).
  assert (K : forall p, In p ps -> In p (c_promised c) /\ cp_round p = round /\ cp_votes p = true /\
    (cp_highest p <= floor)%N /\ all_pairs is_upto (cp_table p) r = true).
  { intros p Hp. apply I, filter_In in Hp. rewrite !andb_true_iff, N.eqb_eq, N.leb_le in Hp. tauto.
    }
  assert (At : forall n, In n (map (p_node size) ps) -> exists p, In p ps /\ p_node size p = n /\
    by_node (p_node size) promise_of no_promise ps n = promise_of p)
    by (intros n Hn; apply by_node_in, Hn).
  refine (Decide (state_of c) 0 (nominated round) (fun n => In n (map (p_node size) ps))
    (by_node (p_node size) promise_of no_promise ps) (N.to_nat floor) (roster_of r)
    _ _ _ _ _ _ _ _);
    try (intros n Hn; destruct (At n Hn) as (p & Ip & Np & ->);
         destruct (K p Ip) as (Pp & Rp & Vp & Fp & Up)).
  - exact Q.
  - apply promises_consistent; [|exact T]. intros p Hp. apply G, K, Hp.
  - apply set_of_list_in. eauto.
  - simpl p_inc. rewrite node_of_inc. exact Np.
  - exact Vp.
  - intros k. simpl. rewrite Rp. reflexivity.
  - simpl. lia.
  - intros m. simpl. rewrite (proj2 (proj2 (proj2 G) p Pp)). apply all_upto_sound, Up.
Qed.

Lemma admits_sound c round i g floor x r c' : good c ->
  admits size plans c round i g floor x r = Some c' -> runs c c'.
Proof.
  unfold admits. intros G H. destruct (nominee round (node_at i)) as [e|] eqn:E; [|discriminate].
  destruct (get i (c_memory c)) as [m|] eqn:M; [|discriminate].
  require H B. rewrite !andb_true_iff, !N.leb_le in B.
  destruct B as [[[[[[Ln Eq] Lx] Lb] Lh] Up] Ex]. apply is_same_sound in Eq; subst e.
  apply existsb_exists in Ex. destruct Ex as (d & Hd & B).
  rewrite !andb_true_iff, N.eqb_eq, N.leb_le in B. destruct B as [[<- Lf] Lr].
  apply Nat.eqb_eq in Ln.
  split; [|split; [apply good_memory; [assumption | split; [exact Ln | reflexivity]] | apply G]].
  refine (Admit (state_of c) (decision_for d) (N.to_nat i) (mem_of m) (N.to_nat g) (N.to_nat x)
    (fun _ => N.to_nat floor) (roster_of r) _ _ _ _ _ _ _ _ _ _).
  - apply set_of_list_in. eauto.
  - simpl. rewrite N2Nat.id. unfold Checker.nominated. rewrite E. reflexivity.
  - rewrite node_of_inc. simpl. apply set_at_0, node_at_lt.
  - apply memory_of, M.
  - simpl. lia.
  - intros any. simpl. lia.
  - apply all_upto_sound, Lr.
  - simpl. lia.
  - intros any. simpl. lia.
  - intros n. simpl. rewrite (proj2 (proj1 G _ _ M)). apply all_upto_sound, Up.
Qed.
End Quorums.
