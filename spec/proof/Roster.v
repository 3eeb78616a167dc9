(** * Rosters: the latest incarnation that is known of every node *)

Require Import Arith Lia.

(** All names are numbers: a run has finitely many names, and only their equality and order matter.
    The order of incarnations is the order of their names, byte by byte. *)
Definition node := nat.
Definition incarnation := nat.

(** An entry of a roster: a generation, and the name of the incarnation that has it. *)
Definition entry := (nat * incarnation)%type.

(** A later entry has a higher generation. Of two entries with equal generations, the one with the
    higher name is later: [isLater] in quorum.ts and roster.lua. *)
Definition earlier (x y : entry) := fst x < fst y \/ (fst x = fst y /\ snd x < snd y).

(** The same, or earlier. *)
Definition upto (x y : entry) := fst x < fst y \/ (fst x = fst y /\ snd x <= snd y).

Definition roster := node -> entry.

(** Each entry of the second roster is that of the first, or a later one. *)
Definition covered (r r' : roster) := forall n, upto (r n) (r' n).

Lemma upto_refl x : upto x x.
Proof. unfold upto; lia. Qed.

Lemma upto_trans x y z : upto x y -> upto y z -> upto x z.
Proof. unfold upto; lia. Qed.

Lemma earlier_upto x y z : earlier x y -> upto y z -> earlier x z.
Proof. unfold earlier, upto; lia. Qed.

Lemma upto_earlier x y z : upto x y -> earlier y z -> earlier x z.
Proof. unfold earlier, upto; lia. Qed.

Lemma earlier_not_upto x y : earlier x y -> upto y x -> False.
Proof. unfold earlier, upto; lia. Qed.

Lemma covered_refl r : covered r r.
Proof. intro n; apply upto_refl. Qed.

Lemma covered_trans a b c : covered a b -> covered b c -> covered a c.
Proof. intros H K n; eapply upto_trans; [apply H | apply K]. Qed.

(** Of two different incarnations of a node, one is later, whatever their generations are. If only
    the generations were compared, this lemma would be false, and with it the theorem. *)
Lemma one_is_later g g' i j : i <> j -> earlier (g, i) (g', j) \/ earlier (g', j) (g, i).
Proof. unfold earlier; simpl; lia. Qed.

(** The test of [knowsLater] in quorum.ts: entry [e] of a roster makes the vote of incarnation [i]
    under generation [g] void. *)
Definition knows_later (e : entry) (g : nat) (i : incarnation) :=
  (snd e = i /\ g < fst e) \/ (snd e <> i /\ g <= fst e).

(** The code voids at least the votes that the order voids. So each quorum that is consistent for
    the code is consistent for the proof. *)
Lemma code_voids_more e g i : earlier (g, i) e -> knows_later e g i.
Proof. unfold earlier, knows_later; simpl; destruct (Nat.eq_dec (snd e) i); lia. Qed.

#[export] Hint Resolve upto_refl upto_trans covered_refl covered_trans : core.
