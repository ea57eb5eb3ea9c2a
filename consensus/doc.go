// Package consensus is the meaning of every vote: ballots, tallies, rules, decisions and rounds. It
// does no I/O and imports the standard library only; the kernels of cuda/kernels count as it does,
// and are compared with it.
//
// # Ballots
//
// A ballot names one of 1..256 candidates by its index. It is a byte, or half a byte where there
// are 16 candidates or fewer: agent 2i then has the low half of byte i, agent 2i+1 the high half. A
// ballot that is all ones (Abstain, AbstainPacked) abstains, unless as many candidates stand as the
// ballot has values, 256 or 16: the highest value is then a candidate and nobody can abstain. Any
// other value that is no candidate is an invalid ballot. It is counted as that, and for nobody.
//
// A ballot weighs 1, or the integer weight that is given with it. Weights are integers, so that a
// tally does not depend on the order of the ballots; Fixed makes one of a fraction. All sums of a
// tally, abstentions and invalid ballots included, are in units of weight. A fractional weight that
// is NaN, negative or at least 65536 makes its ballot invalid with weight 0; such ballots are
// counted apart from the sums.
//
// # Rules
//
// The strongest candidate is the one with the most votes; of several the one with the smallest
// index. The tie rule makes the rules decisive and gives up neutrality between candidates, one of
// the four properties by which May characterised majority rule, so candidates are best numbered by
// the harm of choosing them wrongly: the least harmful first. A rule reports whether the strongest
// has won. Nobody wins without a vote.
//
// Plurality: the strongest wins. Known as first past the post. Of 4, 3 and 2 votes, 4 win.
//
// Majority: more than half. With two candidates the only rule that is decisive, anonymous, neutral
// and positively responsive (K. O. May, A Set of Independent Necessary and Sufficient Conditions
// for Simple Majority Decision, Econometrica 20, 1952), and the one that makes many weak judges a
// good one (Condorcet, Essai sur l'application de l'analyse, 1785). Of 4, 3 and 2 votes nobody
// wins: 4 are not more than half of 9. Of 5 and 4, 5 win.
//
// Quorum: at least a fraction q. Two quorums of more than a half share a voter, which is why
// replicated data uses them (R. H. Thomas, A Majority Consensus Approach, ACM TODS 4, 1979; D. K.
// Gifford, Weighted Voting for Replicated Data, SOSP 1979); 2/3 leaves room for a third of faulty
// voters. With q = 2/3, 6 of 9 votes win and 5 do not.
//
// Weighted: the most weight wins, as in a company's meeting and in Gifford's replicas. A share of
// the weight is not a share of the power: of weights 50, 49 and 1 the last two are equally strong
// (J. F. Banzhaf, Weighted Voting Doesn't Work, Rutgers Law Review 19, 1965). It is plurality over
// a tally of weights; the other rules take such a tally too.
//
// Unanimous: every vote (K. Wicksell, Finanztheoretische Untersuchungen, 1896; J. M. Buchanan, G.
// Tullock, The Calculus of Consent, 1962). Of 9 and 0 votes, 9 win; of 8 and 1 nobody.
//
// Majority, quorum and unanimity are of the votes cast, or with Base All of everybody: an
// abstention and an invalid ballot then stand against the strongest. Of 5 votes, 1 vote and 4
// abstentions, 5 are a majority of the votes cast, and none of all.
//
// # Rounds
//
// A round has a number, and the numbers of a swarm only grow: a round is closed once, and never
// after a later one. The tallies of the shards of a round merge to one tally (Tally.Merge).
//
// The leader of a round is the agent with the highest priority, of several the one with the
// smallest id: the order of H. Garcia-Molina's bully (Elections in a Distributed Computing System,
// IEEE TC 31, 1982), decided by one maximum over all agents in place of messages. An agent need not
// vote to lead. Without priorities all are equal.
//
// In an Election the leader is one of the agents that vote for the winner. Each of them bids with a
// priority that a Draw gives it, and the leader of the round before, the incumbent, bids with its
// term. The incumbent has the best bid; otherwise the highest priority wins, and the smallest id
// among equals. A round that nobody wins has no leader.
package consensus
