(** * The protocol: state and actions

    The words are those of docs/tokens.md. README.md names the code of every action.

    A run is a sequence of actions. Each action is one atomic script on one node, or a computation
    of one client. There are no clocks: [now] counts the actions. Votes and promises stay for ever, and
    may be used at any later time. So messages may be lost, late, repeated and reordered, and
    clients may stop.

    ** Assumptions, in one place

    - A script runs atomically, and the data of an incarnation never go back in time: [memory].
    - Each loss of memory begins an incarnation with a name of its own: [Appear]. An incarnation
      that has ended may nevertheless go on answering, as an old master does.
    - Any two quorums of a node set share a node: [quorums_meet].
    - Owner ids are never used again: [Begin] and [Win].
    - The last conditions of [FirstStart], and [not_replaced]. They are about starts after a loss of
      memory. They say nothing if no earlier incarnation has voted or promised.
    - If a set starts again after a move to it, its floor is not below the answers to SEAL. *)

From Fenced Require Export Roster.
Require Import Arith.

Definition owner := nat.
Definition resource := nat.
Definition node_set := nat.

(** The fixed facts of a run. The same server under another key prefix is another node. *)
Class Setting := {
  node_of : incarnation -> node;
  set_of : node -> node_set;
  (** The resources of each acquisition. *)
  wants : owner -> resource -> bool;
  (** The quorums of each node set: majorities, for example. *)
  quorum : node_set -> (node -> Prop) -> Prop;
  quorum_members : forall S Q n, quorum S Q -> Q n -> set_of n = S;
  quorums_meet : forall S Q R, quorum S Q -> quorum S R -> exists n, Q n /\ R n
}.

Section Protocol.
Context {E : Setting}.

(** ** What is kept and sent *)

(** What an incarnation remembers. The next number for resource [x] is above [bound x]: its last
    token and the floor; or [highest] if the name is forgotten. *)
Record mem := {
  votes : bool;
  generation : nat;
  highest : nat;
  bound : resource -> nat;
  knows : roster;
  sealed_for : option node_set
}.

(** A vote of incarnation [v_inc] for the numbers from [v_low] to [v_high]: the acquisition's own
    number and those of its followers. *)
Record vote := {
  v_owner : owner; v_inc : incarnation; v_gen : nat; v_low : nat; v_high : nat; v_roster : roster;
  v_time : nat
}.

(** What a round asks the nodes to promise. *)
Definition nominations := node -> option entry.
Definition nobody : nominations := fun _ => None.

(** An answer to PROMISE; or to SEAL, then [p_sealed_for] names the next set, and nobody is
    nominated. [p_roster] is the roster before the promise. *)
Record promise := {
  p_inc : incarnation; p_gen : nat; p_votes : bool; p_nominated : nominations; p_highest : nat;
  p_roster : roster; p_sealed_for : option node_set; p_time : nat
}.

(** What a client computes from promises: the floor and the roster for ADMIT. [d_first]: it is a
    first start. Then [d_quorum] has the nodes on which the assumptions of first starts hold. *)
Record decision := {
  d_set : node_set; d_first : bool; d_nominated : nominations; d_quorum : node -> Prop;
  d_source : node -> promise; d_floor : nat; d_roster : roster; d_time : nat
}.

(** A won acquisition has the tokens from [w_low] to [w_high]: its own, and those of followers. *)
Record win := {
  w_set : node_set; w_owner : owner; w_low : nat; w_high : nat; w_quorum : node -> Prop;
  w_vote : node -> vote; w_time : nat
}.

(** A lease of the acquisition [l_owner], from the win of [l_winner]. If the two differ, it was
    handed over. *)
Record lease := {
  l_set : node_set; l_owner : owner; l_winner : owner; l_token : nat; l_time : nat
}.

Record state := {
  now : nat;
  (** When an acquisition began. *)
  began : owner -> option nat;
  memory : incarnation -> option mem;
  (** The node set from which a set waits for a move. *)
  awaits : node_set -> option node_set;
  voted : vote -> Prop;
  promised : promise -> Prop;
  decided : decision -> Prop;
  won : win -> Prop;
  leased : lease -> Prop
}.

Definition init (s : state) :=
  now s = 0 /\ (forall o, began s o = None) /\ (forall i, memory s i = None) /\
  (forall S, awaits s S = None) /\ (forall v, ~ voted s v) /\ (forall p, ~ promised s p) /\
  (forall d, ~ decided s d) /\ (forall w, ~ won s w) /\ (forall l, ~ leased s l).

(** ** Changes of the state *)

Definition put {A} (f : nat -> A) (k : nat) (x : A) : nat -> A :=
  fun j => if Nat.eq_dec j k then x else f j.
Definition add {A} (X : A -> Prop) (x : A) : A -> Prop := fun y => y = x \/ X y.

Definition tick s := {| now := S (now s); began := began s; memory := memory s; awaits := awaits s;
  voted := voted s; promised := promised s; decided := decided s; won := won s; leased := leased s |}.
Definition begin s o := {| now := now s; began := put (began s) o (Some (now s)); memory := memory s;
  awaits := awaits s; voted := voted s; promised := promised s; decided := decided s; won := won s;
  leased := leased s |}.
Definition remember s i m := {| now := now s; began := began s; memory := put (memory s) i (Some m);
  awaits := awaits s; voted := voted s; promised := promised s; decided := decided s; won := won s;
  leased := leased s |}.
Definition await s B A := {| now := now s; began := began s; memory := memory s;
  awaits := put (awaits s) B (Some A); voted := voted s; promised := promised s;
  decided := decided s; won := won s; leased := leased s |}.
Definition cast s v := {| now := now s; began := began s; memory := memory s; awaits := awaits s;
  voted := add (voted s) v; promised := promised s; decided := decided s; won := won s;
  leased := leased s |}.
Definition give s p := {| now := now s; began := began s; memory := memory s; awaits := awaits s;
  voted := voted s; promised := add (promised s) p; decided := decided s; won := won s;
  leased := leased s |}.
Definition decide s d := {| now := now s; began := began s; memory := memory s; awaits := awaits s;
  voted := voted s; promised := promised s; decided := add (decided s) d; won := won s;
  leased := leased s |}.
Definition win_with s w l := {| now := now s; began := began s; memory := memory s;
  awaits := awaits s; voted := voted s; promised := promised s; decided := decided s;
  won := add (won s) w; leased := add (leased s) l |}.
Definition hand_over s l := {| now := now s; began := began s; memory := memory s;
  awaits := awaits s; voted := voted s; promised := promised s; decided := decided s; won := won s;
  leased := add (leased s) l |}.

(** ** Conditions *)

Definition vote_entry v : entry := (v_gen v, v_inc v).
Definition promise_entry p : entry := (p_gen p, p_inc p).

(** Consistent quorum: no voter knows a later entry of another voter. *)
Definition consistent_votes (Q : node -> Prop) (f : node -> vote) :=
  forall n m, Q n -> Q m -> n <> m -> ~ earlier (vote_entry (f m)) (v_roster (f n) m).
Definition consistent_promises (Q : node -> Prop) (f : node -> promise) :=
  forall n m, Q n -> Q m -> n <> m -> ~ earlier (promise_entry (f m)) (p_roster (f n) m).

(** A consistent quorum of set [A] was sealed for [B], and answered with at most [f]. *)
Definition sealed_quorum s (A B : node_set) (f : nat) (Q : node -> Prop) (a : node -> promise) :=
  quorum A Q /\ consistent_promises Q a /\
  forall n, Q n -> promised s (a n) /\ node_of (p_inc (a n)) = n /\
    p_sealed_for (a n) = Some B /\ p_highest (a n) <= f.

(** ASSUMPTION of first starts. On the nodes of a quorum of the first start, an incarnation that is
    earlier than the nominated one does not act any more. On the other nodes it may, as an old
    master does. *)
Definition not_replaced s i g := forall d e,
  decided s d -> d_first d = true -> d_quorum d (node_of i) ->
  d_nominated d (node_of i) = Some e -> i <> snd e -> earlier e (g, i).

(** ** Actions *)

Inductive step (s : state) : state -> Prop :=

(** A client makes an owner id. *)
| Begin o :
    began s o = None ->
    step s (tick (begin s o))

(** INSPECT, RETIRE or PREPARE names a new incarnation. It has no vote, and ANY memory: none, that
    of a snapshot, or all of it. *)
| Appear i m :
    memory s i = None ->
    votes m = false ->
    step s (tick (remember s i m))

(** ACQUIRE and CONFIRM: a vote for numbers above all that the incarnation gave for the resources.
    Each resource of the acquisition gets the same number. *)
| Vote o i m low high :
    memory s i = Some m ->
    votes m = true ->
    sealed_for m = None ->
    not_replaced s i (generation m) ->
    began s o <> None ->
    (forall x, wants o x = true -> bound m x < low) ->
    low <= high ->
    step s (tick (cast (remember s i
      {| votes := true; generation := generation m; highest := Nat.max (highest m) high;
         bound := fun x => if wants o x then high else bound m x;
         knows := knows m; sealed_for := None |})
      {| v_owner := o; v_inc := i; v_gen := generation m; v_low := low; v_high := high;
         v_roster := knows m; v_time := now s |}))

(** BACKFILL, the numbers that EXTEND reports, and CARRY: what is remembered only rises. *)
| Note i m t b :
    memory s i = Some m ->
    highest m <= t ->
    (forall x, bound m x <= b x) ->
    step s (tick (remember s i
      {| votes := votes m; generation := generation m; highest := t; bound := b; knows := knows m;
         sealed_for := sealed_for m |}))

(** Forgotten names: their next number is above the highest that the node ever gave. *)
| Forget i m (names : resource -> bool) :
    memory s i = Some m ->
    step s (tick (remember s i
      {| votes := votes m; generation := generation m; highest := highest m;
         bound := fun x => if names x then highest m else bound m x; knows := knows m;
         sealed_for := sealed_for m |}))

(** PROMISE. A voter answers under its own generation. An incarnation without a vote answers under
    the generation for which the round nominates it; only a first start counts that answer. *)
| Promise i m g nom :
    memory s i = Some m ->
    sealed_for m = None ->
    (if votes m then g = generation m else nom (node_of i) = Some (g, i)) ->
    not_replaced s i g ->
    (forall n e, nom n = Some e -> upto (knows m n) e) ->
    (forall e, nom (node_of i) = Some e -> snd e = i) ->
    step s (tick (give (remember s i
      {| votes := votes m; generation := generation m; highest := highest m; bound := bound m;
         knows := fun n => match nom n with Some e => e | None => knows m n end;
         sealed_for := None |})
      {| p_inc := i; p_gen := g; p_votes := votes m; p_nominated := nom; p_highest := highest m;
         p_roster := knows m; p_sealed_for := None; p_time := now s |}))

(** A client computes a readmission from the promises of a consistent quorum of voters. The round
    may nominate anything. *)
| Decide S nom Q a f r :
    quorum S Q ->
    consistent_promises Q a ->
    (forall n, Q n -> promised s (a n)) ->
    (forall n, Q n -> node_of (p_inc (a n)) = n) ->
    (forall n, Q n -> p_votes (a n) = true) ->
    (forall n, Q n -> forall k, p_nominated (a n) k = nom k) ->
    (forall n, Q n -> p_highest (a n) <= f) ->
    (forall n, Q n -> covered (p_roster (a n)) r) ->
    step s (tick (decide s
      {| d_set := S; d_first := false; d_nominated := nom; d_quorum := Q; d_source := a;
         d_floor := f; d_roster := r; d_time := now s |}))

(** A first start: all nodes of the set have promised, and all are nominated.
    The last three conditions are ASSUMPTIONS about the nodes of a quorum [G]. They hold if no
    earlier incarnation of these nodes has voted or promised. Else the clock must be right, because
    it gives the floor and the generations:
    - the floor is not below votes of earlier incarnations of these nodes;
    - the nominations are not below those that they promised;
    - none of them was sealed: one sealed node keeps its data. *)
| FirstStart S nom (G : node -> Prop) a f r :
    (forall n, set_of n = S -> nom n <> None) ->
    (forall n, set_of n = S -> promised s (a n)) ->
    (forall n, set_of n = S -> node_of (p_inc (a n)) = n) ->
    (forall n, set_of n = S -> forall k, p_nominated (a n) k = nom k) ->
    (forall n, set_of n = S -> p_highest (a n) <= f) ->
    (forall n e, nom n = Some e -> upto e (r n)) ->
    (** PREPARE and SEAL: if the set waits for a move, the floor is not below the answers of the
        sealed nodes. If a set starts again after a move, this is an ASSUMPTION, too. *)
    (forall A, awaits s S = Some A -> exists Q a', sealed_quorum s A S f Q a') ->
    quorum S G ->
    (forall v e, voted s v -> G (node_of (v_inc v)) -> nom (node_of (v_inc v)) = Some e ->
       v_inc v <> snd e -> earlier (vote_entry v) e -> v_high v <= f) ->
    (forall p e, promised s p -> G (node_of (p_inc p)) -> nom (node_of (p_inc p)) = Some e ->
       p_inc p <> snd e -> earlier (promise_entry p) e ->
       forall n e1 e2, p_nominated p n = Some e1 -> nom n = Some e2 -> upto e1 e2) ->
    (forall p e, promised s p -> G (node_of (p_inc p)) -> nom (node_of (p_inc p)) = Some e ->
       p_inc p <> snd e -> earlier (promise_entry p) e -> p_sealed_for p = None) ->
    step s (tick (decide s
      {| d_set := S; d_first := true; d_nominated := nom; d_quorum := G; d_source := a;
         d_floor := f; d_roster := r; d_time := now s |}))

(** ADMIT: a first vote, whatever the incarnation remembers; or a higher generation of a voter. *)
| Admit d i m g t b r :
    decided s d ->
    d_nominated d (node_of i) = Some (g, i) ->
    set_of (node_of i) = d_set d ->
    memory s i = Some m ->
    d_floor d <= t ->
    (forall x, d_floor d <= b x) ->
    covered (d_roster d) r ->
    highest m <= t ->
    (forall x, bound m x <= b x) ->
    covered (knows m) r ->
    step s (tick (remember s i
      {| votes := true; generation := g; highest := t; bound := b; knows := r;
         sealed_for := sealed_for m |}))

(** An acquisition wins: a consistent quorum has voted for the same last number. *)
| Win S o low high Q f :
    quorum S Q ->
    consistent_votes Q f ->
    (forall n, Q n -> voted s (f n)) ->
    (forall n, Q n -> node_of (v_inc (f n)) = n) ->
    (forall n, Q n -> v_owner (f n) = o) ->
    (forall n, Q n -> v_high (f n) = high) ->
    (forall n, Q n -> v_low (f n) <= low) ->
    low <= high ->
    (forall w, won s w -> w_owner w <> o) ->
    step s (tick (win_with s
      {| w_set := S; w_owner := o; w_low := low; w_high := high; w_quorum := Q; w_vote := f;
         w_time := now s |}
      {| l_set := S; l_owner := o; l_winner := o; l_token := low; l_time := now s |}))

(** The process hands the lock over to a follower, with the next token. The follower was waiting for
    the lock when the votes were cast. *)
| HandOver w o t token :
    won s w ->
    began s o = Some t ->
    (forall n, w_quorum w n -> t < v_time (w_vote w n)) ->
    (forall x, wants o x = true -> wants (w_owner w) x = true) ->
    (forall l, leased s l -> l_winner l = w_owner w -> l_token l < token) ->
    token <= w_high w ->
    step s (tick (hand_over s
      {| l_set := w_set w; l_owner := o; l_winner := w_owner w; l_token := token; l_time := now s |}))

(** PREPARE, on all nodes of [B]: the set waits for a move from [A]. It has not started. A first
    start that has admitted nobody does not count: PREPARE ends the incarnations that it nominated,
    so it never will, and a run may leave it out. *)
| Prepare A B :
    (forall d, decided s d -> d_set d <> B) ->
    step s (tick (await s B A))

(** SEAL, at a voter: it neither votes nor promises afterwards. A repeated SEAL is answered, too. *)
| Seal i m B :
    memory s i = Some m ->
    votes m = true ->
    (forall C, sealed_for m = Some C -> C = B) ->
    not_replaced s i (generation m) ->
    step s (tick (give (remember s i
      {| votes := true; generation := generation m; highest := highest m; bound := bound m;
         knows := knows m; sealed_for := Some B |})
      {| p_inc := i; p_gen := generation m; p_votes := true; p_nominated := nobody;
         p_highest := highest m; p_roster := knows m; p_sealed_for := Some B; p_time := now s |})).

Inductive reach : state -> Prop :=
| Start s : init s -> reach s
| Next s s' : reach s -> step s s' -> reach s'.

End Protocol.
