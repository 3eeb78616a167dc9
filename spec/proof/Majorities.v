(** * Majorities of N nodes, for each N *)

From Fenced Require Export Tokens.
Require Import Arith Lia List.

(** The members of each set, any number of them. *)
Section Majorities.
Variable node_of : incarnation -> node.
Variable set_of : node -> node_set.
Variable wants : owner -> resource -> bool.
Variable members : node_set -> list node.
Hypothesis membership : forall S n, In n (members S) <-> set_of n = S.

(** More than half of the members: [majorityOf] in quorum.ts. *)
Definition majority S (Q : node -> Prop) :=
  (forall n, Q n -> In n (members S)) /\
  exists l, NoDup l /\ (forall n, In n l -> Q n) /\ length (members S) < 2 * length l.

Lemma majorities_meet S Q R : majority S Q -> majority S R -> exists n, Q n /\ R n.
Proof.
  intros (InQ & l & Nl & Ql & Hl) (InR & k & Nk & Rk & Hk).
  destruct (Exists_dec (fun n => In n k) l (fun n => in_dec Nat.eq_dec n k)) as [X | X].
  - apply Exists_exists in X. destruct X as (n & L & K). exists n; auto.
  - exfalso. assert (length (l ++ k) <= length (members S)); [| rewrite app_length in *; lia].
    apply NoDup_incl_length.
    + assert (D : forall n, In n l -> ~ In n k).
      { intros n L K. apply X, Exists_exists. exists n; auto. }
      clear - Nl Nk D. induction Nl as [| n l F N IH]; simpl in *; auto. constructor.
      * rewrite in_app_iff. intros [L | K]; [auto | apply (D n); auto].
      * apply IH; intros; apply D; auto.
    + intros n H. apply in_app_iff in H. destruct H; auto.
Qed.

Definition majorities : Setting := {|
  Protocol.node_of := node_of; Protocol.set_of := set_of; Protocol.wants := wants;
  quorum := majority;
  quorum_members := fun S Q n H K => proj1 (membership S n) (proj1 H n K);
  quorums_meet := majorities_meet
|}.

Theorem tokens_grow_majorities (E := majorities) s O a b x t :
  reach s -> leased s a -> leased s b ->
  came_out s O (l_set a) -> came_out s O (l_set b) ->
  wants (l_owner a) x = true -> wants (l_owner b) x = true ->
  began s (l_owner b) = Some t -> l_time a < t ->
  l_token a < l_token b.
Proof. exact (tokens_grow (E := E) s O a b x t). Qed.

Theorem tokens_unique_majorities (E := majorities) s O a b x :
  reach s -> leased s a -> leased s b ->
  came_out s O (l_set a) -> came_out s O (l_set b) ->
  wants (l_owner a) x = true -> wants (l_owner b) x = true ->
  l_token a = l_token b -> a = b.
Proof. exact (tokens_unique (E := E) s O a b x). Qed.

End Majorities.
