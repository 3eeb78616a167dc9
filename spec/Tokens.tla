------------------------------- MODULE Tokens -------------------------------
(* Fencing tokens from a register on a majority of nodes that may lose their memory.          *)
(* docs/tokens.md explains the protocol; README.md names the script and the tests of each     *)
(* action.                                                                                    *)
(*                                                                                            *)
(* There is one resource, and no time: a lease may end at any moment. So the check covers all *)
(* clocks, pauses and delays. Requests and replies may arrive late, more than once, or never. *)

EXTENDS Naturals, FiniteSets, TLC

CONSTANTS
  Nodes,         \* the Redis nodes
  Promoted,      \* replicas without data that were promoted, while their old masters still answer
  FailedOver,    \* the node of the promoted replicas: they and its old master share its name
  Acquisitions,  \* each is one try to get a lease, under an owner id of its own
  Rounds,        \* each is one round of readmission, by any client
  Looks,         \* the sets of nodes that a client may inspect at one moment
  LossesMax,     \* the most restarts and losses of memory, of all nodes together
  ForgetsMax,    \* the most times that nodes forget the resource, all nodes together
  Followers,     \* how many waiters of one process an acquisition takes tokens for, beside its own
  TokenMax,      \* tokens above this are not explored
  NamesRise,     \* TRUE if the names of a node's incarnations rise; FALSE if they fall
  Again,         \* TRUE if requests also arrive twice, or after a win, and leases are backfilled
  NoOne, Nobody, \* a holder and an inspection that do not exist
  Mutant         \* the protective step that is left out; "none" for the protocol as it is

VARIABLES
  node,     \* by server: what it keeps
  names,    \* by node: the names that its incarnations have had
  status,   \* by acquisition: "new", "asking" or "won"
  token,    \* by acquisition: the token that it returned; 0 before
  last,     \* by acquisition: its last token: its own, or one reserved for a successor; 0 before
  confirms, \* the acquisitions that have asked a node to confirm
  before,   \* by acquisition: those that had returned when it began
  waiting,  \* by acquisition: those that were asking when it began
  replies,  \* votes that nodes sent. They stay: a reply may arrive at any time
  round,    \* by round of readmission: its phase, and the replies so far
  losses, forgets

acquisitions == <<status, token, last, before, waiting, confirms>>
vars == <<node, names, acquisitions, replies, round, losses, forgets>>

Servers == Nodes \cup Promoted
NodeOf(s) == IF s \in Promoted THEN FailedOver ELSE s
Of(n, set) == {s \in set : NodeOf(s) = n}

Max(a, b) == IF a > b THEN a ELSE b
Highest(numbers) == CHOOSE n \in numbers \cup {0} : \A other \in numbers : n >= other
IsMajority(set) == 2 * Cardinality(set) > Cardinality(Nodes)

----------------------------------------------------------------------------
(* Consistent quorum *)

NoIncarnation == [name |-> 0, gen |-> 0]
EmptyRoster == [n \in Nodes |-> NoIncarnation]

(* The order of the entries for one node. Names are compared only to decide between equal     *)
(* generations: then all nodes and clients that know both entries keep the same one. Names    *)
(* are random, so a later incarnation need not have a later name.                             *)
Later(one, other) ==
  \/ one.gen > other.gen
  \/ one.gen = other.gen /\ one.name > other.name /\ Mutant # "roster ties kept by place"
Latest(entries) == CHOOSE entry \in entries : \A other \in entries : ~Later(other, entry)

(* A roster knows a later incarnation, or a later generation, of the node that voted. Of two  *)
(* incarnations with equal generations, each voids the other. That is more than by `Later`.   *)
KnowsLater(roster, voter) ==
  LET known == roster[voter.node]
  IN IF known.name = voter.name THEN known.gen > voter.gen ELSE known.gen >= voter.gen

IsConsistent(voters) ==
  \A one, other \in voters : ~KnowsLater(one.roster, other)

(* The sets of voters that have exactly one vote of each node of a majority. *)
Quorums(voters) ==
  {set \in SUBSET voters :
     /\ IsMajority({voter.node : voter \in set})
     /\ \A one, other \in set : one.node = other.node => one = other}

ConsistentQuorums(voters) == {set \in Quorums(voters) : IsConsistent(set)}

----------------------------------------------------------------------------
(* Acquire *)

(* A node votes if it was readmitted under its present replication id: a restart changes it.  *)
MayVote(s) == node[s].voting \/ (Mutant = "no readmission check" /\ node[s].gen > 0)

(* An upper bound of the tokens that this node gave for the resource. If it has forgotten the *)
(* resource, the bound is its highest token of all resources.                                 *)
HighestGiven(s) ==
  IF node[s].last = 0
  THEN IF Mutant = "forgotten name begins below the highest token"
       THEN node[s].floor ELSE node[s].max
  ELSE IF Mutant = "last token preferred to the floor"
       THEN node[s].last ELSE Max(node[s].last, node[s].floor)

Vote(a, s, given) ==
  [owner |-> a, node |-> NodeOf(s), token |-> given,
   name |-> node[s].name, gen |-> node[s].gen, roster |-> node[s].roster]

Give(a, s, given) ==
  /\ node' = [node EXCEPT ![s].last = given, ![s].max = Max(@, given), ![s].holder = a]
  /\ replies' = replies \cup {Vote(a, s, given)}

Begin(a) ==
  /\ status[a] = "new"
  /\ status' = [status EXCEPT ![a] = "asking"]
  /\ before' = [before EXCEPT ![a] = {b \in Acquisitions : status[b] = "won"}]
  /\ waiting' = [waiting EXCEPT ![a] =
       IF Followers = 0 THEN {} ELSE {b \in Acquisitions : status[b] = "asking"}]
  /\ UNCHANGED <<node, names, token, last, confirms, replies, round, losses, forgets>>

(* A node grants although another holder has the lock: without time, a lease may end at any   *)
(* moment. A request may arrive late: an acquisition that never wins goes on asking. With     *)
(* `Again`, it may also arrive twice, or after the acquisition was won.                       *)
Acquire(a, s) ==
  /\ status[a] = "asking" \/ (Again /\ status[a] = "won")
  /\ MayVote(s)
  /\ node[s].holder # a \/ Again
  /\ LET own == IF Mutant = "successor without a token of its own" THEN 0 ELSE Followers
     IN HighestGiven(s) + 1 + own <= TokenMax /\ Give(a, s, HighestGiven(s) + 1 + own)
  /\ UNCHANGED <<names, acquisitions, round, losses, forgets>>

ConfirmAs(a, s, chosen) ==
  /\ \E vote \in replies : vote.owner = a /\ vote.node = NodeOf(s) /\ vote.token < chosen
  /\ MayVote(s)
  /\ node[s].holder = a
  /\ LET raised == Max(chosen, HighestGiven(s) + 1)
     IN raised <= TokenMax /\ Give(a, s, raised)
  /\ confirms' = confirms \cup {a}
  /\ UNCHANGED <<names, status, token, last, before, waiting, round, losses, forgets>>

Confirm(a, s) ==
  \E chosen \in {vote.token : vote \in {vote \in replies : vote.owner = a}} :
    ConfirmAs(a, s, chosen)

(* A majority has stored the same token. An acquisition also takes a token for each follower, *)
(* a waiter of its process: then the stored token is the last of several, and the holder has  *)
(* the first. A confirmed token is the only one: those below it may be of other acquisitions. *)
Win(a) ==
  /\ status[a] = "asking"
  /\ LET votes == {vote \in replies : vote.owner = a}
         quorums == IF Mutant = "roster ignored" THEN Quorums(votes) ELSE ConsistentQuorums(votes)
     IN \E quorum \in quorums :
          LET chosen == Highest({vote.token : vote \in quorum})
          IN /\ Mutant = "no confirm round" \/ \A vote \in quorum : vote.token = chosen
             /\ LET isOne == a \in confirms /\ Mutant # "a confirmed token is the last of several"
                IN CASE Mutant = "successor without a token of its own" ->
                          /\ token' = [token EXCEPT ![a] = chosen]
                          /\ last' = [last EXCEPT ![a] = chosen + Followers]
                     [] OTHER ->
                          /\ token' = [token EXCEPT ![a] = IF isOne THEN chosen ELSE chosen - Followers]
                          /\ last' = [last EXCEPT ![a] = chosen]
  /\ status' = [status EXCEPT ![a] = "won"]
  /\ UNCHANGED <<node, names, before, waiting, confirms, replies, round, losses, forgets>>

(* A holder gives its lock and the next of its tokens to a waiter of its process. The waiter  *)
(* was waiting already when the tokens were taken.                                            *)
HandOver(a, b) ==
  /\ status[a] = "won" /\ token[a] < last[a]
  /\ status[b] = "asking"
  /\ b \in waiting[a] \/ Mutant = "successor that came later"
  /\ status' = [status EXCEPT ![b] = "won"]
  /\ token' = [token EXCEPT ![b] = token[a] + 1]
  /\ last' = [last EXCEPT ![a] = token[a], ![b] = last[a]]
  /\ UNCHANGED <<node, names, before, waiting, confirms, replies, round, losses, forgets>>

(* Copies a lease to a node that has given no token above `number`. Its reply is no vote. *)
Backfill(a, s, number) ==
  /\ Again /\ status[a] = "won"
  /\ MayVote(s)
  /\ node[s].holder = a \/ HighestGiven(s) <= number
  /\ LET given == Max(number, HighestGiven(s))
     IN node' = [node EXCEPT ![s].last = given, ![s].max = Max(@, given), ![s].holder = a]
  /\ UNCHANGED <<names, acquisitions, replies, round, losses, forgets>>

(* A node forgets the name of a resource that no client has locked for `fenceTtlMs`. *)
Forget(s) ==
  /\ forgets < ForgetsMax
  /\ node[s].last > 0
  /\ node' = [node EXCEPT ![s].last = 0, ![s].holder = NoOne]
  /\ forgets' = forgets + 1
  /\ UNCHANGED <<names, acquisitions, replies, round, losses>>

----------------------------------------------------------------------------
(* Loss of memory *)

Empty ==
  [voting |-> FALSE, isNamed |-> FALSE, name |-> 0, gen |-> 0, roster |-> EmptyRoster,
   floor |-> 0, max |-> 0, last |-> 0, holder |-> NoOne]

(* The name of a node's incarnation number `count`. *)
Name(count) == IF NamesRise THEN count ELSE 9 - count

(* The memory of a node at the beginning: the node votes, and an earlier lease had token 1. *)
First ==
  [voting |-> TRUE, isNamed |-> TRUE, name |-> Name(1), gen |-> 1,
   roster |-> [n \in Nodes |-> [name |-> Name(1), gen |-> 1]],
   floor |-> 0, max |-> 1, last |-> 1, holder |-> NoOne]

(* The server starts again, under a new replication id: without data, with the data of an     *)
(* early snapshot, or with all of its data.                                                   *)
RestartWith(s, found) ==
  /\ losses < LossesMax
  /\ losses' = losses + 1
  /\ node' = [node EXCEPT ![s] = [found EXCEPT !.voting = FALSE, !.isNamed = FALSE]]
  /\ UNCHANGED <<names, acquisitions, replies, round, forgets>>

Restart(s) == \E found \in {Empty, First, node[s]} : RestartWith(s, found)

----------------------------------------------------------------------------
(* Readmission *)

Idle == [phase |-> "idle"]

(* The first INSPECT after a restart names the incarnation. *)
Named(s, name) ==
  IF node[s].isNamed THEN node[s] ELSE [node[s] EXCEPT !.isNamed = TRUE, !.name = name]

(* A client reaches one server of each node. `new`: by server, the name that it offers. *)
InspectAny(r, set, new) ==
  /\ \/ round[r] = Idle
     \/ round[r].phase = "looking" /\ \A s \in set : round[r].seen[NodeOf(s)] = Nobody
  /\ node' = [s \in Servers |-> IF s \in set THEN Named(s, new[s]) ELSE node[s]]
  /\ names' = [n \in Nodes |-> names[n] \cup {node'[s].name : s \in Of(n, set)}]
  /\ round' = [round EXCEPT ![r] =
       [phase |-> "looking", seen |-> [n \in Nodes |->
          IF Of(n, set) # {}
          THEN LET s == CHOOSE s \in set : NodeOf(s) = n
               IN [node |-> n, server |-> s, voting |-> node'[s].voting, name |-> node'[s].name,
                   gen |-> node'[s].gen, roster |-> node'[s].roster]
          ELSE IF round[r] = Idle THEN Nobody ELSE round[r].seen[n]]]]
  /\ UNCHANGED <<acquisitions, replies, losses, forgets>>

(* A round begins only while some server does not vote. Others are not explored. *)
Inspect(r, set) ==
  /\ round[r] = Idle => \E s \in Servers : ~node[s].voting
  /\ InspectAny(r, set, [s \in set |-> Name(Cardinality(names[NodeOf(s)]) + 1)])

Seen(r) == {round[r].seen[n] : n \in Nodes} \ {Nobody}
Voters(set) == {one \in set : one.voting}

(* TRUE if one of `voters` knows a later incarnation or generation of the node of `one`. *)
IsSuperseded(one, voters) == \E other \in voters : KnowsLater(other.roster, one)

HasQuorum(voters) ==
  IF Mutant = "promises from superseded incarnations accepted"
  THEN Quorums(voters) # {} ELSE ConsistentQuorums(voters) # {}

(* Nominates an incarnation under a generation above all known ones of its node. If another   *)
(* client has nominated the same incarnation, both use the same generation. `least` is 1, or  *)
(* the time of the clock if no majority votes.                                                *)
NominationOf(one, seen, least) ==
  LET known == {other.roster[one.node] : other \in seen}
      latest == Max(one.gen, Highest({entry.gen : entry \in known}))
      nominations == {entry \in known : entry.gen = latest}
      isOurs == nominations # {} /\ \A entry \in nominations : entry.name = one.name
      knowers == {other \in seen : other.roster[one.node].gen = latest}
      nominated == IF isOurs /\ latest > one.gen THEN latest ELSE latest + 1
  IN [node |-> one.node, name |-> one.name,
      gen |-> IF isOurs /\ IsMajority(knowers) THEN latest ELSE Max(least, nominated)]

(* If a majority votes, a round nominates the nodes without a vote that counts. Otherwise it  *)
(* nominates all: every node must promise, and all must have been as seen at one moment.      *)
PlanFrom(r, least, clock) ==
  /\ round[r].phase = "looking"
  /\ LET seen == Seen(r)
         voters == Voters(seen)
         hasQuorum == HasQuorum(voters)
         subjects ==
           IF hasQuorum THEN {one \in seen : ~one.voting \/ IsSuperseded(one, voters)} ELSE seen
     IN /\ subjects # {}
        /\ hasQuorum \/
             /\ Cardinality(seen) = Cardinality(Nodes)
             /\ Mutant = "no common moment" \/
                  \A one \in seen :
                    LET now == node[one.server]
                    IN now.isNamed /\ now.voting = one.voting /\ now.name = one.name
                       /\ now.gen = one.gen /\ now.roster = one.roster
        /\ round' = [round EXCEPT ![r] =
             [phase |-> "promising", seen |-> @.seen, promises |-> {},
              nominations |->
                {NominationOf(one, seen, IF hasQuorum THEN 1 ELSE least) : one \in subjects},
              everybody |-> ~hasQuorum, clock |-> IF hasQuorum THEN 0 ELSE clock]]
  /\ UNCHANGED <<node, names, acquisitions, replies, losses, forgets>>

(* If no majority votes, tokens begin above the clock, which is above every token so far. The *)
(* client reads the clock before it asks for promises. From then until `Decide`, other        *)
(* clients may readmit the nodes.                                                             *)
Clock == Highest({vote.token : vote \in replies})

Plan(r) == PlanFrom(r, 1, Clock)

(* A node accepts all nominations of a round, or none. It refuses one if it has learned of a  *)
(* later generation since its inspection. With `Again`, the request may arrive twice, or      *)
(* after `Decide`. `counts`: the reply reaches the client before `Decide`.                    *)
PromiseAs(r, s, counts) ==
  /\ round[r].phase = "promising" \/ (Again /\ round[r].phase = "admitting")
  /\ round[r].seen[NodeOf(s)] # Nobody
  /\ IF Again THEN TRUE ELSE \A promise \in round[r].promises : promise.node # NodeOf(s)
  /\ node[s].isNamed /\ node[s].name = round[r].seen[NodeOf(s)].name
  /\ LET nominations == round[r].nominations
         isKnown(nomination) ==
           node[s].roster[nomination.node] = [name |-> nomination.name, gen |-> nomination.gen]
         isNext(nomination) ==
           /\ node[s].roster[nomination.node].gen
                = round[r].seen[NodeOf(s)].roster[nomination.node].gen
           /\ node[s].roster[nomination.node].gen < nomination.gen
         roster == [m \in Nodes |->
           IF \E one \in nominations : one.node = m
           THEN LET one == CHOOSE one \in nominations : one.node = m
                IN [name |-> one.name, gen |-> one.gen]
           ELSE node[s].roster[m]]
     IN /\ Mutant = "promise whatever is nominated" \/
             \A nomination \in nominations : isKnown(nomination) \/ isNext(nomination)
        /\ node' = [node EXCEPT ![s].roster = roster]
        /\ round' =
             IF counts /\ round[r].phase = "promising"
             THEN [round EXCEPT ![r].promises = {promise \in @ : promise.node # NodeOf(s)} \cup
               {[node |-> NodeOf(s), voting |-> node[s].voting, max |-> node[s].max,
                 name |-> node[s].name, gen |-> node[s].gen, roster |-> node[s].roster]}]
             ELSE round
  /\ UNCHANGED <<names, acquisitions, replies, losses, forgets>>

Promise(r, s) ==
  \E counts \in {TRUE} \cup (IF Again THEN {FALSE} ELSE {}) : PromiseAs(r, s, counts)

(* The entry for node m after a decision. The mutant keeps the first of the latest ones, in   *)
(* the order of the nodes: these are numbers then.                                            *)
Merged(m, sources, nominations) ==
  LET nominated ==
        {[name |-> one.name, gen |-> one.gen] : one \in {one \in nominations : one.node = m}}
      known == {source.roster[m] : source \in sources} \cup nominated
      latest ==
        {source \in sources : \A entry \in known : ~Later(entry, source.roster[m])}
  IN IF Mutant = "roster ties kept by place" /\ latest # {}
     THEN (CHOOSE one \in latest : \A other \in latest : one.node <= other.node).roster[m]
     ELSE Latest(known)

Decide(r) ==
  /\ round[r].phase = "promising"
  /\ LET promises == round[r].promises
         voters == Voters(promises)
         quorums == IF Mutant = "promises from superseded incarnations accepted"
                    THEN Quorums(voters) ELSE ConsistentQuorums(voters)
         all == round[r].everybody /\ Cardinality(promises) = Cardinality(Nodes)
     IN /\ \A promise \in promises : promise.voting => round[r].seen[promise.node].voting
        /\ \E sources \in IF quorums # {} THEN quorums ELSE IF all THEN {promises} ELSE {} :
             LET max == Highest({source.max : source \in sources})
             IN round' = [round EXCEPT ![r] =
                  [phase |-> "admitting", nominations |-> @.nominations,
                   seen |-> IF Again THEN @.seen ELSE Nobody,
                   floor |-> IF quorums # {} \/ Mutant = "floor below the clock"
                             THEN max ELSE Max(max, round[r].clock),
                   roster |-> IF Mutant = "roster not restored"
                              THEN EmptyRoster
                              ELSE [m \in Nodes |-> Merged(m, sources, @.nominations)]]]
  /\ UNCHANGED <<node, names, acquisitions, replies, losses, forgets>>

(* The node votes from now on, if it is still the incarnation that was inspected. So its      *)
(* generation alone shows whether it was admitted already.                                    *)
Admit(r, s) ==
  /\ round[r].phase = "admitting"
  /\ \E nomination \in round[r].nominations :
       /\ nomination.node = NodeOf(s)
       /\ node[s].isNamed /\ node[s].name = nomination.name
       /\ ~node[s].voting \/ node[s].gen < nomination.gen
       /\ LET highest == Max(IF Mutant = "floor not restored" THEN 0 ELSE round[r].floor,
                             node[s].max)
              roster == [m \in Nodes |->
                IF Later(node[s].roster[m], round[r].roster[m])
                THEN node[s].roster[m] ELSE round[r].roster[m]]
          IN node' = [node EXCEPT ![s].voting = TRUE, ![s].gen = nomination.gen,
                      ![s].roster = roster, ![s].floor = highest, ![s].max = highest]
  /\ UNCHANGED <<names, acquisitions, replies, round, losses, forgets>>

----------------------------------------------------------------------------

(* The acquisitions in `won` have returned token 1. Nodes have sent no other votes. *)
Start(won) ==
  /\ token = [a \in Acquisitions |-> IF a \in won THEN 1 ELSE 0]
  /\ last = token
  /\ confirms = {}
  /\ before = [a \in Acquisitions |-> {}]
  /\ waiting = [a \in Acquisitions |-> {}]
  /\ round = [r \in Rounds |-> Idle]
  /\ losses = 0
  /\ forgets = 0
  /\ status = [a \in Acquisitions |-> IF a \in won THEN "won" ELSE "new"]
  /\ replies = {[owner |-> a, node |-> n, token |-> 1, name |-> 0, gen |-> 0,
                 roster |-> EmptyRoster] : a \in won, n \in Nodes}

Init ==
  /\ Start({})
  /\ node = [s \in Servers |-> IF s \in Promoted THEN Empty ELSE First]
  /\ names = [n \in Nodes |-> {Name(1)}]

(* No node has any memory: the first start, or the next one after a loss of all memory. *)
InitWithoutMemory(won) ==
  /\ Start(won)
  /\ node = [s \in Servers |-> Empty]
  /\ names = [n \in Nodes |-> {}]

Next ==
  \/ \E a \in Acquisitions : Begin(a) \/ Win(a) \/ \E b \in Acquisitions : HandOver(a, b)
  \/ \E a \in Acquisitions, s \in Servers :
       Acquire(a, s) \/ Confirm(a, s) \/ Backfill(a, s, last[a])
  \/ \E s \in Servers : Forget(s) \/ Restart(s)
  \/ \E r \in Rounds : Plan(r) \/ Decide(r) \/ \E set \in Looks : Inspect(r, set)
  \/ \E r \in Rounds, s \in Servers : Promise(r, s) \/ Admit(r, s)

Spec == Init /\ [][Next]_vars
SpecWithoutMemory == (\E a \in Acquisitions : InitWithoutMemory({a})) /\ [][Next]_vars

----------------------------------------------------------------------------
(* Properties *)

(* Strict growth: if one acquisition returned before another began, its token is lower. *)
Growth ==
  \A a, b \in Acquisitions :
    status[a] = "won" /\ status[b] = "won" /\ a \in before[b] => token[a] < token[b]

(* No two acquisitions return the same token. *)
Unique ==
  \A a, b \in Acquisitions :
    a # b /\ status[a] = "won" /\ status[b] = "won" => token[a] # token[b]

(* Nodes, acquisitions and rounds are interchangeable, except for the node that failed over. *)
Symmetry ==
  Permutations(Nodes \ {FailedOver}) \cup Permutations(Acquisitions) \cup Permutations(Rounds)

=============================================================================
