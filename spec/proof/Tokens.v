(** * Tokens grow *)

From Fenced Require Export Moves.
Require Import Arith Lia.

Section Tokens.
Context {E : Setting}.

(** ** Acquisitions that won *)

(** Two wins of one set share a node. If one incarnation voted for both, its numbers only grew. Else
    a decision nominated the later incarnation, and covers the win of the earlier one. *)
Lemma later_incarnation s A B n : reach s -> won s A -> won s B -> w_set A = w_set B ->
  w_quorum A n -> w_quorum B n -> v_inc (w_vote A n) <> v_inc (w_vote B n) ->
  earlier (vote_entry (w_vote A n)) (vote_entry (w_vote B n)) ->
  exists d m, decided s d /\ w_quorum A m /\ v_time (w_vote A m) < d_time d /\
    d_time d < v_time (w_vote B n) /\ w_high A <= d_floor d /\
    forall x, wants (w_owner B) x = true -> d_floor d < w_low B.
Proof.
  intros R HA HB S QA QB Ne L.
  pose proof (win_wins s R A HA) as [A1 A2 A3 A4 _]. pose proof (win_wins s R B HB) as [B1 B2 B3 _ B5].
  destruct (A3 n QA) as (Va & Oa & _). destruct (B3 n QB) as (Vb & Ob & Wb & _).
  specialize (B5 n QB). set (y := w_vote B n) in *.
  destruct (vote_origin s R y Vb) as (d & D & (Sd & Nd) & Td & Fd & _). rewrite Ob in Sd, Nd.
  destruct (cover s R (Datatypes.S (d_time d)) d) with (Q := w_quorum A) (f := w_vote A)
    (high := w_high A) (n := n) (e := vote_entry y) as (m & Qm & Tm & Hm); auto.
  { rewrite Sd, <- (quorum_members _ _ _ A1 QA) in *. rewrite (quorum_members _ _ _ A1 QA). exact A1. }
  { intros k K. destruct (A3 k K) as (? & ? & _). auto. }
  exists d, m. repeat split; auto. intros x W. specialize (Fd x). rewrite Wb in Fd. specialize (Fd W). lia.
Qed.

(** If all votes of [B] were cast after [A] had won, all tokens of [B] are above those of [A]. *)
Lemma later_votes_later_tokens s A B x : reach s -> won s A -> won s B -> w_set A = w_set B ->
  wants (w_owner A) x = true -> wants (w_owner B) x = true ->
  (forall m, w_quorum B m -> w_time A < v_time (w_vote B m)) -> w_high A < w_low B.
Proof.
  intros R HA HB S XA XB After.
  pose proof (win_wins s R A HA) as [A1 A2 A3 A4 _]. pose proof (win_wins s R B HB) as [B1 B2 B3 _ B5].
  pose proof A1 as A1'. rewrite S in A1'. destruct (quorums_meet _ _ _ A1' B1) as (n & QA & QB).
  destruct (A3 n QA) as (Va & Oa & Wa & Ta). destruct (B3 n QB) as (Vb & Ob & Wb & Tb).
  specialize (A4 n QA). specialize (B5 n QB). pose proof (After n QB) as An.
  destruct (Nat.eq_dec (v_inc (w_vote A n)) (v_inc (w_vote B n))) as [Same | Diff].
  - assert (v_high (w_vote A n) < v_low (w_vote B n)); [| lia].
    apply (vote_then_vote s R _ _ x); auto; try lia; congruence.
  - destruct (one_is_later (v_gen (w_vote A n)) (v_gen (w_vote B n)) _ _ Diff) as [L | L].
    + destruct (later_incarnation s A B n) as (d & m & _ & _ & _ & _ & H & K); auto.
      specialize (K x XB). lia.
    + exfalso. destruct (later_incarnation s B A n) as (d & m & _ & Qm & T & T' & _); auto.
      specialize (After m Qm). lia.
Qed.

(** Two wins of different acquisitions have different ranges of tokens. *)
Lemma wins_are_disjoint s A B x : reach s -> won s A -> won s B -> w_set A = w_set B ->
  w_owner A <> w_owner B -> wants (w_owner A) x = true -> wants (w_owner B) x = true ->
  w_high A < w_low B \/ w_high B < w_low A.
Proof.
  intros R HA HB S O XA XB.
  pose proof (win_wins s R A HA) as [A1 _ A3 A4 A5]. pose proof (win_wins s R B HB) as [B1 _ B3 B4 B5].
  pose proof A1 as A1'. rewrite S in A1'. destruct (quorums_meet _ _ _ A1' B1) as (n & QA & QB).
  destruct (A3 n QA) as (Va & Oa & Wa & _). destruct (B3 n QB) as (Vb & Ob & Wb & _).
  specialize (A4 n QA). specialize (A5 n QA). specialize (B4 n QB). specialize (B5 n QB).
  destruct (Nat.eq_dec (v_inc (w_vote A n)) (v_inc (w_vote B n))) as [Same | Diff].
  - destruct (lt_eq_lt_dec (v_time (w_vote A n)) (v_time (w_vote B n))) as [[T | T] | T].
    + left. assert (v_high (w_vote A n) < v_low (w_vote B n)); [| lia].
      apply (vote_then_vote s R _ _ x); auto; congruence.
    + exfalso. apply O. rewrite <- Wa, <- Wb. f_equal. apply (one_vote_at_a_time s R); auto.
    + right. assert (v_high (w_vote B n) < v_low (w_vote A n)); [| lia].
      apply (vote_then_vote s R _ _ x); auto; congruence.
  - destruct (one_is_later (v_gen (w_vote A n)) (v_gen (w_vote B n)) _ _ Diff) as [L | L].
    + left. destruct (later_incarnation s A B n) as (d & m & _ & _ & _ & _ & H & K); auto.
      specialize (K x XB). lia.
    + right. destruct (later_incarnation s B A n) as (d & m & _ & _ & _ & _ & H & K); auto.
      specialize (K x XA). lia.
Qed.

(** A vote in a set that came out of the set of [A] follows one vote for [A]. *)
Lemma moves_end s A v : reach s -> won s A -> voted s v ->
  later_set s (w_set A) (set_of (node_of (v_inc v))) ->
  exists m, w_quorum A m /\ v_time (w_vote A m) < v_time v.
Proof.
  intros R HA V L. destruct (vote_origin s R v V) as (d & D & (Sd & _) & T & _).
  destruct (decision_after_move s _ _ d A R L D Sd HA eq_refl) as (_ & m & Qm & Tm).
  exists m. split; auto; lia.
Qed.

(** A win there is above [A]. *)
Lemma moves_grow s A B x : reach s -> won s A -> won s B -> later_set s (w_set A) (w_set B) ->
  wants (w_owner B) x = true -> w_high A < w_low B.
Proof.
  intros R HA HB L XB. pose proof (win_wins s R B HB) as [B1 _ B3 _ B5].
  destruct (some_node _ _ B1) as (n & Qn). destruct (B3 n Qn) as (V & O & W & _). specialize (B5 n Qn).
  destruct (vote_origin s R _ V) as (d & D & (Sd & _) & _ & F & _). specialize (F x).
  rewrite O, (quorum_members _ _ _ B1 Qn) in Sd. rewrite W in F. specialize (F XB).
  destruct (decision_after_move s _ _ d A R L D Sd HA eq_refl) as (H & _). lia.
Qed.

(** ** Leases: won, or handed over *)

(** The winner has the first token of its win. *)
Lemma own_lease s : reach s -> forall w, won s w ->
  exists l, leased s l /\ l_winner l = w_owner w /\ l_token l = w_low w.
Proof.
  intros R; along_the_run R; intros w H; [destruct (I8 w H) |].
  pose proof (messages_stay s s' St) as (_ & _ & _ & _ & _ & HL).
  destruct St; cases; try (destruct (IH w H) as (l & L & ?); exists l; auto; fail).
  eexists; split; [left; reflexivity | auto].
Qed.

(** A lease has one of the tokens of a win. Its acquisition began before the votes for that win. The
    winner's did because a vote is for an owner id. A follower was waiting. *)
Lemma lease_of_win s : reach s -> forall l, leased s l ->
  exists w, won s w /\ w_owner w = l_winner l /\ w_set w = l_set l /\
    w_low w <= l_token l /\ l_token l <= w_high w /\ w_time w <= l_time l /\
    (forall x, wants (l_owner l) x = true -> wants (w_owner w) x = true) /\
    exists t, began s (l_owner l) = Some t /\ forall n, w_quorum w n -> t < v_time (w_vote w n).
Proof.
  intros R; along_the_run R; intros l H; [destruct (I9 l H) |].
  pose proof (messages_stay s s' St) as (_ & _ & _ & _ & HW & HL).
  assert (Begun : forall o t, began s o = Some t -> began s' o = Some t)
    by (intros o t B; clear - St B; destruct St; cases; auto; congruence).
  assert (Old : leased s l -> exists w, won s' w /\ w_owner w = l_winner l /\ w_set w = l_set l /\
    w_low w <= l_token l /\ l_token l <= w_high w /\ w_time w <= l_time l /\
    (forall x, wants (l_owner l) x = true -> wants (w_owner w) x = true) /\
    exists t, began s' (l_owner l) = Some t /\ forall n, w_quorum w n -> t < v_time (w_vote w n)).
  { intros L. destruct (IH l L) as (w & W & P1 & P2 & P3 & P4 & P5 & P6 & t & P7 & P8).
    exists w. repeat split; auto. exists t. auto. }
  destruct St; cases; auto.
  - (* the winner's own lease *)
    eexists; split; [left; reflexivity |]. simpl. repeat split; auto.
    match goal with HQ : quorum S Q |- _ => destruct (some_node S Q HQ) as (n & Qn) end.
    match goal with O : forall n, Q n -> v_owner (f n) = o |- _ => rename O into Owner end.
    destruct (vote_after_begin s R (f n)) as (t & B & T); auto. rewrite (Owner n Qn) in B.
    exists t. split; auto. intros k Qk.
    destruct (vote_after_begin s R (f k)) as (t' & B' & T'); auto. rewrite (Owner k Qk) in B'.
    congruence.
  - (* a follower's *)
    exists w. match goal with K : won s w |- _ => rename K into Hw end.
    pose proof (win_time s R w Hw). destruct (own_lease s R w Hw) as (l & L & Wl & Tl).
    repeat split; auto; [| lia | exists t; auto].
    match goal with K : forall l, _ -> _ -> l_token l < token |- _ => specialize (K l L Wl) end. lia.
Qed.

(** The leases of a win have different tokens: each is the next one. *)
Lemma one_lease_per_token s : reach s -> forall l l', leased s l -> leased s l' ->
  l_winner l = l_winner l' -> l_token l = l_token l' -> l = l'.
Proof.
  intros R; along_the_run R; intros l l' H H' W T; [destruct (I9 l H) |].
  assert (New : forall o l, (forall w, won s w -> w_owner w <> o) -> leased s l -> l_winner l = o -> False).
  { intros o l0 N L O. destruct (lease_of_win s R l0 L) as (w & Hw & Ow & _).
    apply (N w Hw). congruence. }
  destruct St; cases; auto; exfalso; try (eapply New; eauto; fail);
    match goal with K : forall l, _ -> _ -> l_token l < _, L : leased s _ |- _ =>
      specialize (K _ L); simpl in *; rewrite ?W, ?T in *; lia end.
Qed.

(** ** The theorems *)

(** STRICT GROWTH. Of two leases of one resource, in sets of one lock service: if the first was
    returned before the acquisition of the second began, its token is lower. *)
Theorem tokens_grow s O a b x t : reach s -> leased s a -> leased s b ->
  came_out s O (l_set a) -> came_out s O (l_set b) ->
  wants (l_owner a) x = true -> wants (l_owner b) x = true ->
  began s (l_owner b) = Some t -> l_time a < t ->
  l_token a < l_token b.
Proof.
  intros R La Lb Ca Cb Xa Xb Bb T.
  destruct (lease_of_win s R a La) as (A & HA & OA & SA & LoA & HiA & TA & WA & _).
  destruct (lease_of_win s R b Lb) as (B & HB & OB & SB & LoB & HiB & TB & WB & t' & Bb' & After).
  assert (t' = t) as -> by congruence.
  assert (w_high A < w_low B); [| lia].
  destruct (in_one_line s O _ _ R Ca Cb) as [[S | L] | [S | L]]; rewrite <- SA, <- SB in *.
  - apply (later_votes_later_tokens s A B x); auto. intros m Qm. specialize (After m Qm). lia.
  - apply (moves_grow s A B x); auto.
  - apply (later_votes_later_tokens s A B x); auto. intros m Qm. specialize (After m Qm). lia.
  - (* the set of [a] came out of that of [b], which has ended *)
    exfalso. pose proof (win_wins s R A HA) as [A1 _ A3 _ _]. destruct (some_node _ _ A1) as (n & Qn).
    destruct (A3 n Qn) as (V & N & _ & Tv). destruct (moves_end s B (w_vote A n)) as (m & Qm & Tm); auto.
    { rewrite N, (quorum_members _ _ _ A1 Qn). exact L. }
    specialize (After m Qm). lia.
Qed.

(** UNIQUENESS. No two leases of a resource have the same token. *)
Theorem tokens_unique s O a b x : reach s -> leased s a -> leased s b ->
  came_out s O (l_set a) -> came_out s O (l_set b) ->
  wants (l_owner a) x = true -> wants (l_owner b) x = true ->
  l_token a = l_token b -> a = b.
Proof.
  intros R La Lb Ca Cb Xa Xb T.
  destruct (Nat.eq_dec (l_winner a) (l_winner b)) as [W | W]; [apply (one_lease_per_token s R); auto |].
  exfalso.
  destruct (lease_of_win s R a La) as (A & HA & OA & SA & LoA & HiA & _ & WA & _).
  destruct (lease_of_win s R b Lb) as (B & HB & OB & SB & LoB & HiB & _ & WB & _).
  assert (w_high A < w_low B \/ w_high B < w_low A); [| lia].
  destruct (in_one_line s O _ _ R Ca Cb) as [[S | L] | [S | L]]; rewrite <- SA, <- SB in *.
  - apply (wins_are_disjoint s A B x); auto; congruence.
  - left. apply (moves_grow s A B x); auto.
  - apply (wins_are_disjoint s A B x); auto; congruence.
  - right. apply (moves_grow s B A x); auto.
Qed.

(** A MOVE IS FINAL. Once a node has voted in a set that came out of set [A], no acquisition that
    begins later gets a lease in [A]. *)
Theorem old_set_has_ended s v l t : reach s -> voted s v -> leased s l ->
  later_set s (l_set l) (set_of (node_of (v_inc v))) ->
  began s (l_owner l) = Some t -> v_time v < t -> False.
Proof.
  intros R V Hl L B T.
  destruct (lease_of_win s R l Hl) as (w & W & _ & S & _ & _ & _ & _ & t' & B' & After).
  assert (t' = t) as -> by congruence. rewrite <- S in L.
  destruct (moves_end s w v) as (m & Qm & Tm); auto. specialize (After m Qm). lia.
Qed.

End Tokens.
