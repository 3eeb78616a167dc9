(** * The state of the protocol that a state of the checker stands for *)

From Fenced Require Export Majorities Checker.
Require Import Arith NArith Lia List Bool.
Import ListNotations.

Lemma is_earlier_sound x y : is_earlier x y = true <-> earlier (entry_of x) (entry_of y).
Proof.
  unfold is_earlier, earlier, entry_of; simpl.
  rewrite orb_true_iff, andb_true_iff, !N.ltb_lt, N.eqb_eq. lia.
Qed.

Lemma is_same_sound x y : is_same x y = true -> x = y.
Proof.
  destruct x, y; unfold is_same; simpl. rewrite andb_true_iff, !N.eqb_eq. intros []; congruence.
Qed.

Lemma is_upto_sound x y : is_upto x y = true -> upto (entry_of x) (entry_of y).
Proof.
  unfold is_upto. rewrite orb_true_iff, is_earlier_sound. intros [H | H].
  - revert H; unfold earlier, upto; lia.
  - apply is_same_sound in H; subst; auto.
Qed.

Lemma all_upto_sound r : forall r', all_pairs is_upto r r' = true ->
  covered (roster_of r) (roster_of r').
Proof.
  unfold covered, roster_of, at_node.
  induction r as [|x r IH]; destruct r'; simpl; try congruence; intros H n; auto.
  apply andb_true_iff in H; destruct H as [H K].
  destruct n; [apply is_upto_sound, H | apply IH, K].
Qed.

(** ** The state that a state of the checker stands for *)

Definition mem_of (m : c_mem) : mem := {| votes := c_votes m; generation := N.to_nat (c_gen m);
  highest := N.to_nat (c_highest m); bound := fun _ => N.to_nat (c_bound m); knows := c_knows m;
  sealed_for := None |}.
Definition vote_of (v : c_vote) : vote := {| v_owner := N.to_nat (cv_owner v);
  v_inc := N.to_nat (cv_inc v); v_gen := N.to_nat (cv_gen v); v_low := N.to_nat (cv_token v);
  v_high := N.to_nat (cv_token v); v_roster := cv_roster v; v_time := cv_time v |}.

Fixpoint map_of {A B} (f : A -> B) (l : list (N * A)) : nat -> option B :=
  match l with
  | [] => fun _ => None
  | (i, x) :: l => put (map_of f l) (N.to_nat i) (Some (f x))
  end.
Fixpoint set_of_list {A B} (f : A -> B) (l : list A) : B -> Prop :=
  match l with
  | [] => fun _ => False
  | x :: l => add (set_of_list f l) (f x)
  end.

Lemma map_of_get {A B} (f : A -> B) l i : map_of f l (N.to_nat i) = option_map f (get i l).
Proof.
  induction l as [|[j x] l IH]; simpl; auto. unfold put.
  destruct (N.eqb_spec j i), (Nat.eq_dec (N.to_nat i) (N.to_nat j)); subst; auto; lia.
Qed.

Lemma set_of_list_in {A B} (f : A -> B) l y : set_of_list f l y <-> exists x, In x l /\ y = f x.
Proof.
  induction l as [|a l IH]; simpl; unfold add; [firstorder |]. rewrite IH. split.
  - intros [-> | (x & H & ->)]; eauto.
  - intros (x & [-> | H] & ->); eauto.
Qed.

(** The elements of a list, by their nodes. *)
Definition by_node {A B} (node_of : A -> node) (f : A -> B) (none : B) (l : list A) : node -> B :=
  fun n => match find (fun x => Nat.eqb (node_of x) n) l with Some x => f x | None => none end.
Arguments by_node : simpl never.

Lemma by_node_in {A B} (node_of : A -> node) (f : A -> B) none l n : In n (map node_of l) ->
  exists x, In x l /\ node_of x = n /\ by_node node_of f none l n = f x.
Proof.
  intros H. apply in_map_iff in H. destruct H as (x & E & H). unfold by_node.
  destruct (find _ l) eqn:F.
  - apply find_some in F. destruct F as [F K]. apply Nat.eqb_eq in K. eauto.
  - apply (find_none _ _ F) in H. rewrite E, Nat.eqb_refl in H; discriminate.
Qed.

Lemma get_node_in {A} n (l : list (node * A)) x : get_node n l = Some x -> In (n, x) l.
Proof.
  induction l as [|[m y] l IH]; simpl; [discriminate |].
  destruct (Nat.eqb_spec m n); [intros E; inversion E; subst; auto | auto].
Qed.

(** ** The search for quorums *)

Lemma choose_sound {A} (together : A -> A -> bool) : forall rest k chosen found,
  choose together k chosen rest = Some found ->
  ForallOrdPairs (fun x y => together x y = true) chosen ->
  ForallOrdPairs (fun x y => together x y = true) found /\ length found = k + length chosen /\
  forall x, In x found -> In x chosen \/ In x rest.
Proof.
  induction rest as [|x rest IH]; intros [|k] chosen found H O; simpl in H; try discriminate;
    try (inversion H; subst; repeat split; auto; fail).
  assert (Skip : choose together (S k) chosen rest = Some found ->
    ForallOrdPairs (fun x y => together x y = true) found /\ length found = S k + length chosen /\
    forall y, In y found -> In y chosen \/ In y (x :: rest)).
  { intros K; destruct (IH _ _ _ K O) as (? & ? & I). split; [assumption |]. split; [assumption |].
    intros y Hy; destruct (I y Hy); simpl; auto. }
  destruct (forallb (together x) chosen) eqn:F; [|auto].
  destruct (choose together k (x :: chosen) rest) eqn:C; [|auto].
  inversion H; subst. destruct (IH _ _ _ C) as (P & L & I).
  - constructor; auto. apply Forall_forall. rewrite forallb_forall in F. auto.
  - split; [assumption |]. split; [simpl in L; lia |].
    intros y Hy; destruct (I y Hy) as [[-> | ?] | ?]; simpl; auto.
Qed.

(** ** One node set, and one resource *)

Section OneSet.
Variable size : N.
Variable plans : list (N * list (node * pair)).

Notation node_at := (node_at size).
Notation is_node := (is_node size).
Notation nominee := (nominee size plans).
Notation nominated := (nominated size plans).

(** The nodes of the trace are set 0. Each other number is a set of its own. *)
Definition set_at (n : node) : node_set := if is_node n then 0 else S n.
Definition members (S : node_set) : list node :=
  match S with
  | 0 => seq 0 (N.to_nat size)
  | Datatypes.S n => if is_node n then [] else [n]
  end.

Lemma set_at_0 n : set_at n = 0 <-> n < N.to_nat size.
Proof.
  unfold set_at, Checker.is_node. rewrite <- Nat.ltb_lt. destruct (Nat.ltb _ _); split; congruence.
Qed.

Lemma membership S n : In n (members S) <-> set_at n = S.
Proof.
  destruct S as [|m]; simpl.
  - rewrite set_at_0, in_seq. lia.
  - unfold set_at. destruct (is_node m) eqn:M; simpl; split; try contradiction.
    + destruct (is_node n) eqn:N; intros E; inversion E; congruence.
    + intros [<- | []]. rewrite M. reflexivity.
    + destruct (is_node n); intros E; inversion E; auto.
Qed.

#[local] Instance one_set : Setting :=
  majorities (fun i => node_at (N.of_nat i)) set_at (fun _ _ => true) members membership.

Definition promise_of (p : c_promise) : promise := {| p_inc := N.to_nat (cp_inc p);
  p_gen := N.to_nat (cp_gen p); p_votes := cp_votes p; p_nominated := nominated (cp_round p);
  p_highest := N.to_nat (cp_highest p); p_roster := cp_roster p; p_sealed_for := None;
  p_time := cp_time p |}.

Definition no_vote : vote := {| v_owner := 0; v_inc := 0; v_gen := 0; v_low := 0; v_high := 0;
  v_roster := roster_of []; v_time := 0 |}.
Definition no_promise : promise := {| p_inc := 0; p_gen := 0; p_votes := false;
  p_nominated := nobody; p_highest := 0; p_roster := roster_of []; p_sealed_for := None;
    p_time := 0 |}.

Definition decision_for (d : c_decision) : decision := {| d_set := 0; d_first := cd_first d;
  d_nominated := nominated (cd_round d); d_quorum := fun n => In n (cd_quorum d);
  d_source := by_node (p_node size) promise_of no_promise (cd_source d);
  d_floor := N.to_nat (cd_floor d); d_roster := roster_of (cd_table d); d_time := cd_time d |}.
Definition win_of (w : c_win) : win := {| w_set := 0; w_owner := N.to_nat (cw_owner w);
  w_low := N.to_nat (cw_token w); w_high := N.to_nat (cw_token w);
  w_quorum := fun n => In n (map (v_node size) (cw_votes w));
  w_vote := by_node (v_node size) vote_of no_vote (cw_votes w); w_time := cw_time w |}.
Definition lease_of (w : c_win) : lease := {| l_set := 0; l_owner := N.to_nat (cw_owner w);
  l_winner := N.to_nat (cw_owner w); l_token := N.to_nat (cw_token w); l_time := cw_time w |}.

Definition state_of (c : c_state) : state := {| now := c_now c;
  began := map_of (fun t => t) (c_began c); memory := map_of mem_of (c_memory c);
  awaits := fun _ => None; voted := set_of_list vote_of (c_voted c);
  promised := set_of_list promise_of (c_promised c);
  decided := set_of_list decision_for (c_decided c); won := set_of_list win_of (c_won c);
  leased := set_of_list lease_of (c_won c) |}.

(** The rosters as data are those of the protocol. *)
Definition faithful (r : table) (f : roster) :=
  length r = N.to_nat size /\ forall n, f n = roster_of r n.
Definition good (c : c_state) :=
  (forall i m, get i (c_memory c) = Some m -> faithful (c_table m) (c_knows m)) /\
  (forall v, In v (c_voted c) -> faithful (cv_table v) (cv_roster v)) /\
  (forall p, In p (c_promised c) -> faithful (cp_table p) (cp_roster p)).

Lemma node_of_inc i : node_of (N.to_nat i) = node_at i.
Proof. simpl. rewrite N2Nat.id. reflexivity. Qed.

Lemma nominee_in round n e : nominee round n = Some e -> In (n, e) (planned plans round).
Proof. unfold Checker.nominee; destruct (is_node n); [apply get_node_in | discriminate]. Qed.

Lemma nominated_some round n e : nominated round n = Some e ->
  exists x, nominee round n = Some x /\ e = entry_of x.
Proof.
  unfold Checker.nominated. destruct (nominee round n) as [x|]; [|discriminate].
  intros K; inversion K; eauto.
Qed.

Lemma with_nominees_faithful round r f : faithful r f ->
  faithful (with_nominees size plans round 0 r)
    (fun n => match nominated round n with Some e => e | None => f n end).
Proof.
  intros [L F].
  assert (K : forall l k, length (with_nominees size plans round k l) = length l /\
    forall n, n < length l -> nth n (with_nominees size plans round k l) (0, 0)%N =
      match nominee round (k + n) with Some e => e | None => nth n l (0, 0)%N end).
  { induction l as [|x l IH]; intros k; simpl; [split; [reflexivity | lia] |].
    destruct (IH (S k)) as [IL IN]. split; [congruence |]. intros [|n] H.
    - rewrite Nat.add_0_r; reflexivity.
    - rewrite IN by lia. replace (k + S n) with (S k + n) by lia. reflexivity. }
  destruct (K r 0) as [KL KN]. split; [congruence |]. intros n.
  unfold Checker.nominated, roster_of, at_node in *.
  destruct (Nat.lt_ge_cases n (length r)) as [H | H].
  - rewrite KN by assumption; simpl. destruct (nominee round n); simpl; auto.
  - rewrite (nth_overflow (with_nominees _ _ _ _ _)) by lia.
    unfold Checker.nominee, Checker.is_node.
    rewrite (proj2 (Nat.ltb_ge n (N.to_nat size))) by lia. simpl.
    rewrite F, nth_overflow by lia. reflexivity.
Qed.

Section Quorum.
Context {A : Type} (node_of : A -> node) (together : A -> A -> bool).
Hypothesis node_lt : forall x, node_of x < N.to_nat size.
Hypothesis apart : forall x y, together x y = true -> node_of x <> node_of y.

Lemma enough_nodes (l : list node) : NoDup l -> (forall n, In n l -> n < N.to_nat size) ->
  needed size <= length l -> majority members 0 (fun n => In n l).
Proof.
  intros D B L. split; [intros n Hn; apply membership, set_at_0; auto |].
  exists l. repeat split; auto. simpl members. rewrite seq_length. revert L.
  unfold needed. rewrite N2Nat.inj_div. change (N.to_nat 2) with 2.
  pose proof (Nat.div_mod_eq (N.to_nat size) 2).
  assert (N.to_nat size mod 2 < 2) by (apply Nat.mod_upper_bound; lia). intros L. lia.
Qed.

Lemma chosen_quorum rest l : choose together (needed size) [] rest = Some l ->
  majority members 0 (fun n => In n (map node_of l)) /\ (forall x, In x l -> In x rest) /\
  forall x y, In x l -> In y l -> node_of x <> node_of y ->
    together x y = true \/ together y x = true.
Proof.
  intros H. destruct (choose_sound together _ _ _ _ H (FOP_nil _)) as (P & L & I). split; [|split].
  - apply enough_nodes; [| |rewrite map_length, L; apply Nat.le_add_r].
    + clear - P apart. induction P as [|x l H _ IH]; simpl; constructor; auto. intros I.
      apply in_map_iff in I. destruct I as (y & E & I). rewrite Forall_forall in H.
      apply (apart x y); auto.
    + intros n Hn. apply in_map_iff in Hn. destruct Hn as (x & <- & _). apply node_lt.
  - intros x Hx; destruct (I x Hx); [contradiction | assumption].
  - intros x y Hx Hy Ne.
    destruct (ForallOrdPairs_In P x y Hx Hy) as [-> | [? | ?]]; auto; contradiction.
Qed.
End Quorum.
End OneSet.
