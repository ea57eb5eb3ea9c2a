package specdoc

// keys are in the order of the document.
var keys = []Key{
	{
		Path: "name", Kind: Text, Required: true,
		Doc: "Name of the swarm: 1 to 64 letters, digits, `-` or `_`, and no `-` first. Commands, metrics and the " +
			"dashboard show it.",
	},
	{
		Path: "addressed", Kind: Text, Values: []string{"group", "agent"}, Default: "group",
		Doc: "Whom an observation is for. `group`: all agents of a group see each row of their series or entity, " +
			"and vote on it. `agent`: each agent has inputs of its own, which ticks step: a simulation.",
	},

	{
		Path: "timestamp", Kind: Text, Default: "timestamp", Scope: Groups,
		Doc: "Column with the time of a row. Values are dates and times (ISO 8601, RFC 3339), or unix times in " +
			"seconds, milliseconds, microseconds or nanoseconds. Other forms are set with `csv.time`.",
	},
	{
		Path: "features", Kind: Texts, Min: "1", Max: "64", Default: "[value]",
		Doc: "Columns with the numbers that the agents see. Under `addressed: agent` the cell limits their number. " +
			"`boids` have `x, y, vx, vy` by default, or `x, y, z, vx, vy, vz`, and `circles` and `colony` `x, y`, or " +
			"`x, y, z`.",
	},
	{
		Path: "key", Kind: OneOrAll, Max: "8", Scope: Groups,
		Doc: "Columns whose values together name the entity of a row, such as `device_id`. Each entity has a group " +
			"of agents from its first row on. Without a key, a file is an entity.",
	},
	{
		Path: "max_entities", Kind: Integer, Min: "1", Max: "134217728", Default: "10000", Scope: Keyed,
		Doc: "Most entities at a time. Rows of further entities are rejected, unless `evict_after` is set.",
	},
	{
		Path: "evict_after", Kind: Duration, Min: "1s", Max: "876000h", Scope: Keyed,
		Doc: "Time without a row, by the times of rows, after which an entity may lose its group to another one. " +
			"It returns with its state. Without it, entities keep their groups. For runs and detectors.",
	},
	{Path: "observations", Kind: Section, Scope: Groups, Doc: "What becomes of rows that are late or appear twice."},
	{
		Path: "observations.late", Kind: Text, Values: []string{"reject", "apply", "drop"}, Default: "reject",
		Scope: Groups,
		Doc: "A row with a time before the latest of its entity. `reject`: the reader rejects it. `apply`: the " +
			"agents see it in the order of arrival. `drop`: the agents ignore it, and its decision says so.",
	},
	{
		Path: "observations.duplicate", Kind: Text, Values: []string{"apply", "drop"}, Default: "apply", Scope: Groups,
		Doc: "A row with the same time as the latest of its entity.",
	},

	{
		Path: "explain", Kind: Boolean, Default: "false", Scope: Groups,
		Doc: "Each decision in outputs has the expected value and band of each feature, and a surprising one has " +
			"its cause. See Explanations in docs/sources.md.",
	},
	{
		Path: "fleet", Kind: Section, Scope: Groups,
		Doc: "Limits the incidents of all entities that are shown as anomalous, and makes one of those in which " +
			"many move together. Others stay suspicious. For the cell predictor. See How often a fleet alarms in " +
			"docs/cells.md.",
	},
	{
		Path: "fleet.false_discoveries", Kind: Number, Min: "0", Max: "0.5", Scope: Groups,
		Doc: "Share of the incidents shown that may be false. 0: no limit.",
	},
	{
		Path: "fleet.alarms_per_day", Kind: Number, Min: "0", Max: "1000000", Scope: Groups,
		Doc: "Incidents of all entities together that are shown in a day, on average over the window. 0: no limit.",
	},
	{
		Path: "fleet.window", Kind: Duration, Min: "12m", Max: "87600h", Scope: Groups,
		Doc: "Time over which incidents are counted, by the times of rows; 28 days if it is left out. What is " +
			"counted in one of its 672 parts takes effect two parts later.",
	},
	{
		Path: "fleet.together", Kind: Duration, Min: "1s", Max: "24h", Scope: Groups,
		Doc: "Time within which incidents of more entities than chance explains are one incident. 0 or left out: " +
			"each entity has its own.",
	},

	{
		Path: "train", Kind: Section, Scope: GRUAgents,
		Doc: "How `exoswarm train` finds the weights of a model for the cell. A row of its input is an event of a " +
			"sequence. See docs/training.md.",
	},
	{
		Path: "train.target", Kind: Text, Scope: Training,
		Doc: "Column that the model is to predict: 0 or 1 with `cell.items`, otherwise the number of a candidate " +
			"from 0. A row that leaves it out is not asked.",
	},
	{
		Path: "train.sequence", Kind: Text, Scope: Training,
		Doc: "Column that tells the sequences apart, such as the student. The rows of a sequence are in order.",
	},
	{
		Path: "train.item", Kind: Text, Scope: Training,
		Doc: "Column of the item, 0 to `cell.items` - 1, that a row asks. With `cell.items` alone.",
	},
	{
		Path: "train.ahead", Kind: Integer, Values: []string{"0", "1"}, Default: "0", Scope: Training,
		Doc: "0: the target of a row is asked of the state behind that row; 1: of the state behind the row before " +
			"it, so that features may hold what is predicted.",
	},
	{
		Path: "train.loss", Kind: Text, Values: []string{"cross_entropy"}, Default: "cross_entropy", Scope: Training,
		Doc: "What training makes small: the cross entropy of the probabilities.",
	},
	{
		Path: "train.window", Kind: Integer, Min: "1", Max: "4096", Default: "200", Scope: Training,
		Doc: "Most rows of a sequence that a gradient passes through. Longer sequences are cut.",
	},
	{
		Path: "train.batch", Kind: Integer, Min: "1", Max: "1048576", Default: "64", Scope: Training,
		Doc: "Windows of a step of the optimizer.",
	},
	{
		Path: "train.epochs", Kind: Integer, Min: "1", Max: "10000", Default: "15", Scope: Training,
		Doc: "Most passes over the sequences.",
	},
	{
		Path: "train.patience", Kind: Integer, Min: "1", Max: "10000", Default: "4", Scope: Training,
		Doc: "Epochs without a lower loss of validation after which training ends.",
	},
	{
		Path: "train.rate", Kind: Number, Min: "0.000001", Max: "1", Default: "0.004", Scope: Training,
		Doc: "Step of Adam.",
	},
	{
		Path: "train.clip", Kind: Number, Min: "0.000001", Max: "1000000", Default: "1", Scope: Training,
		Doc: "Largest norm of the gradient of a step; a larger gradient is scaled down to it.",
	},
	{
		Path: "train.decay", Kind: Number, Min: "0", Max: "1", Default: "0", Scope: Training,
		Doc: "Weight decay of Adam.",
	},
	{
		Path: "train.dropout", Kind: Number, Min: "0", Max: "0.9", Default: "0", Scope: Training,
		Doc: "Share of units that a step of training leaves out at the readout.",
	},
	{
		Path: "train.validate", Kind: Number, Min: "0.001", Max: "0.9", Default: "0.1", Scope: Training,
		Doc: "Share of the sequences that are kept out of training. The weights with the lowest loss on them are the " +
			"model.",
	},
	{
		Path: "train.seed", Kind: Integer, Min: "0", Max: "18446744073709551615", Default: "0", Scope: Training,
		Doc: "Chooses the first weights, the sequences of validation, the order and the dropout.",
	},

	{Path: "csv", Kind: Section, Doc: "How CSV files are written. Other formats ignore it."},
	{
		Path: "csv.delimiter", Kind: Text, Default: `","`,
		Doc: "Separator of fields: one ASCII character such as `;` or `|`, or `tab`.",
	},
	{
		Path: "csv.decimal", Kind: Text, Values: []string{".", ","}, Default: `"."`,
		Doc: "Decimal separator of numbers.",
	},
	{
		Path: "csv.header", Kind: Boolean, Default: "true",
		Doc: "Whether the first record names the columns. Without a header and without `csv.names`, columns are " +
			"called by their numbers, from 1.",
	},
	{
		Path: "csv.names", Kind: Texts, Max: "65536",
		Doc: "Names of the columns of a file without a header, in their order. For `header: false`.",
	},
	{
		Path: "csv.time", Kind: OneOrAll, Max: "8",
		Doc: "Forms of timestamps, as an example of the reference time of Go: `02.01.2006 15:04`. Default: ISO 8601, " +
			"RFC 3339 and unix times.",
	},
	{
		Path: "csv.zone", Kind: Text, Default: "UTC",
		Doc: "Time zone of timestamps without one, such as `Europe/Berlin`.",
	},

	{Path: "cell", Kind: Section, Doc: "The neural update of each agent. The sections below list the cells."},
	{
		Path: "cell.kind", Kind: Text, Values: []string{
			"predictor", "gru", "leaky", "region", "life", "lif", "izhikevich", "sir", "boids", "circles", "colony",
			"quantum", "transformer",
			"custom",
		},
		Default: "predictor",
		Doc: "Name of the cell. Under `addressed: agent`: `gru`, which is the default there, `leaky`, `quantum`, " +
			"`transformer`, or `life`, " +
			"`sir`, `lif`, `izhikevich`, `boids`, `circles`, `colony` and `custom`, which need `neighbours`. " +
			"`custom` has a step in CUDA C++.",
	},
	{
		Path: "cell.params", Kind: Numbers,
		Doc: "Parameters of the cell by name, see its section. Those left out have their defaults.",
	},
	{
		Path: "cell.neurons", Kind: Text, Values: neuronTypes(), Default: "regular_spiking", Scope: Izhikevich,
		Doc: "Type of the excitatory agents: the parameters `a`, `b`, `c` and `d` that are not written in " +
			"`cell.params`.",
	},
	{
		Path: "cell.inhibitory_neurons", Kind: Text, Values: neuronTypes(), Default: "fast_spiking", Scope: Izhikevich,
		Doc: "Type of the inhibitory agents: the parameters `inhibitory_a` to `inhibitory_d`.",
	},
	{
		Path: "cell.weights", Kind: Text, Values: []string{"shared", "group"}, Default: "shared", Scope: GRUGroups,
		Doc: "Whose the recurrent weights are: shared by all groups, or of each group its own.",
	},
	{
		Path: "cell.circuit", Kind: Text, Scope: Quantum, Required: true,
		Doc: "Circuit of the agents in OpenQASM: a file in the folder of the specification or below, or the text. " +
			"Its measured bits, 1 to 4, are the candidates. See docs/quantum.md.",
	},
	{
		Path: "cell.model", Kind: Text, Scope: Trained,
		Doc: "Model whose weights the agents have in place of random ones (`exoswarm model load`). Its tensors have " +
			"the shapes of `torch.nn.GRUCell` and `Linear` of the cell. Of `quantum` it has the tensor `angles`, a " +
			"number for each input of the circuit, in place of parameters. Of `transformer` it is the language " +
			"model, which is required. See docs/formats/model.md.",
	},
	{
		Path: "cell.model_sha256", Kind: Text, Scope: Trained,
		Doc: "Digest of the model, 64 hexadecimal digits. `exoswarm swarm create --snapshots` fills it in.",
	},
	{
		Path: "cell.exact", Kind: Boolean, Scope: Language, Required: true,
		Doc: "Whether the model is computed in float32 with sums in a fixed order, so that tokens and caches have " +
			"the same bits on each device. It must be true: there is no other form yet.",
	},
	{
		Path: "cell.cache_bytes", Kind: Integer, Min: "1", Max: "1073741824", Scope: Language,
		Doc: "Bytes that the keys and values of a token take, as the model says. `exoswarm swarm create --snapshots` " +
			"fills it in.",
	},
	{
		Path: "cell.embed", Kind: Section, Scope: GRUAgents,
		Doc: "Embedding: an observation has one feature, the number of a row, and the row are the inputs of the " +
			"agent. Of a model it is `embed.weight`.",
	},
	{
		Path: "cell.embed.rows", Kind: Integer, Min: "1", Max: "1048576", Scope: GRUAgents,
		Doc: "Number of rows. An observation of another number is refused.",
	},
	{
		Path: "cell.embed.width", Kind: Integer, Min: "1", Max: "32", Scope: GRUAgents,
		Doc: "Numbers of a row, which are the features of the agents. Default: the units of an agent.",
	},
	{
		Path: "cell.items", Kind: Integer, Min: "1", Max: "65536", Scope: GRUAgents,
		Doc: "Readout by item: `readout.weight` of the model has a row for each item. An observation may name an " +
			"item, in the column `item`; its decision has the score of the agent for the item, from 0 to 1. " +
			"Agents vote between two candidates, whether their mean score is above one half.",
	},
	{
		Path: "cell.state", Kind: Types, Scope: Custom,
		Doc: "Variables of an agent and their types: `f32`, `bf16`, `u32`, `u8` or `u64`, and a length for an " +
			"array, as in `f32[4]`. Under `addressed: agent` there are no arrays.",
	},
	{
		Path: "cell.embedding", Kind: Texts, Scope: Custom,
		Doc: "Variables that are the knowledge of an agent, which `swarm fuse` averages. Default: all of `f32` and " +
			"`bf16`.",
	},
	{
		Path: "cell.hear", Kind: Section, Scope: Lattice,
		Doc: "Variables of the neighbours that the step hears, by the reduction over them: `around.mean.u` for " +
			"`mean: [u]`. Up to 32 in all.",
	},
	{Path: "cell.hear.sum", Kind: Texts, Scope: Lattice, Doc: "Sums. Those of whole numbers are exact, or wrap."},
	{Path: "cell.hear.mean", Kind: Texts, Scope: Lattice, Doc: "Sums over the number of neighbours. Not of `u64`."},
	{Path: "cell.hear.max", Kind: Texts, Scope: Lattice, Doc: "Largest values; 0 without neighbours."},
	{Path: "cell.hear.min", Kind: Texts, Scope: Lattice, Doc: "Smallest values; 0 without neighbours."},
	{Path: "cell.hear.count", Kind: Texts, Scope: Lattice, Doc: "Numbers of neighbours whose variable is not 0."},
	{
		Path: "cell.hear.weighted", Kind: Texts, Scope: Lattice,
		Doc: "Sums of values times the weights of links, as floats. On a graph.",
	},
	{Path: "cell.step", Kind: Code, Scope: Custom, Doc: "Step of the cell in CUDA C++."},
	{
		Path: "cell.step_file", Kind: Text, Scope: Custom,
		Doc: "File with the step, in the folder of the specification or below. Instead of `cell.step`.",
	},

	{
		Path: "neighbours", Kind: Section, Scope: Agents,
		Doc: "Whom agents hear in ticks: on a grid of `width` and `height` for the cells `life` and `custom`, in a " +
			"box of `space` for the cells `boids`, `circles` and `colony`, and on a graph for the cells `sir`, " +
			"`lif`, `izhikevich` and `custom`, which is `random`, `ring` or `graph`. Such a swarm has one shard, and " +
			"its pages stay on the device.",
	},
	{
		Path: "neighbours.width", Kind: Integer, Min: "1", Max: "4294967295", Scope: Agents,
		Doc: "Columns of the grid, which has fewer than 2^32 agents: agent y*width+x is in column x of row y. " +
			"Multiples " +
			"of 16 are fastest.",
	},
	{Path: "neighbours.height", Kind: Integer, Min: "1", Max: "134217728", Scope: Agents, Doc: "Rows of the grid."},
	{
		Path: "neighbours.depth", Kind: Integer, Min: "1", Max: "134217728", Default: "1", Scope: Lattice,
		Doc: "Layers of a grid of three dimensions: agent (z*height+y)*width+x is in layer z, and has 26 neighbours.",
	},
	{
		Path: "neighbours.faces", Kind: Boolean, Default: "false", Scope: Lattice,
		Doc: "Whether neighbours share a face: 4, or 6 in three dimensions, instead of 8 or 26.",
	},
	{
		Path: "neighbours.periodic", Kind: Boolean, Default: "false", Scope: Agents,
		Doc: "Whether the first and the last row are neighbours, and likewise the columns and the layers. Otherwise " +
			"what is outside is dead, and agents of a custom cell at an edge have fewer neighbours.",
	},
	{
		Path: "neighbours.space", Kind: Section, Scope: Agents,
		Doc: "Box in which the agents are, at random places by the `seed` of the swarm at first. The others within " +
			"the radius of an agent are its neighbours.",
	},
	{
		Path: "neighbours.space.size", Kind: Lengths, Min: "2", Max: "3", Scope: Agents,
		Doc: "Lengths of the box on its axes, in any unit, each from 4 to 1,000,000 times the radius.",
	},
	{
		Path: "neighbours.space.radius", Kind: Number, Scope: Agents,
		Doc: "Distance within which agents are neighbours.",
	},
	{
		Path: "neighbours.space.nearest", Kind: Integer, Min: "1", Max: "32", Scope: Agents,
		Doc: "Agents that an agent of `boids` hears at the most: the nearest of those within the radius, and of two " +
			"at the same distance the one with the smaller number. Without it, an agent hears all of them. Other " +
			"cells do not have it.",
	},
	{
		Path: "neighbours.space.periodic", Kind: Boolean, Default: "false", Scope: Agents,
		Doc: "Whether who leaves the box on one side comes back on the other. Otherwise boids bounce off its walls, " +
			"and circles stop there.",
	},
	{
		Path: "neighbours.random", Kind: Section, Scope: Agents,
		Doc: "Random graph, which GPU agents generate: each agent of `sir` hears `degree` random other " +
			"agents, and each of `lif` and `izhikevich` is heard by as many.",
	},
	{
		Path: "neighbours.random.degree", Kind: Integer, Min: "1", Max: "1048576", Scope: Agents,
		Doc: "Links of an agent, fewer than there are agents. They are drawn one by one, so that some may be to the " +
			"same agent.",
	},
	{
		Path: "neighbours.random.seed", Kind: Integer, Min: "0", Max: "18446744073709551615", Default: "0",
		Scope: Agents, Doc: "Chooses the links.",
	},
	{
		Path: "neighbours.random.delay", Kind: Ticks, Min: "1", Max: "32", Scope: Agents,
		Doc: "Ticks that a spike of `lif` and `izhikevich` takes over a link: the least and the most, as in " +
			"`[1, 8]`, and each link has one of them by `seed`; or a number for all links. Without it, a spike " +
			"arrives in the next tick.",
	},
	{
		Path: "neighbours.ring", Kind: Section, Scope: Agents,
		Doc: "Ring of all agents in the order of their numbers, which GPU agents generate.",
	},
	{
		Path: "neighbours.ring.reach", Kind: Integer, Min: "1", Max: "524288", Scope: Agents,
		Doc: "Agents on each side to which an agent has links, fewer than half of all.",
	},
	{
		Path: "neighbours.ring.rewire", Kind: Number, Min: "0", Max: "1", Default: "0", Scope: Agents,
		Doc: "Chance that a link is replaced by one to a random other agent, which makes a small world.",
	},
	{
		Path: "neighbours.ring.seed", Kind: Integer, Min: "0", Max: "18446744073709551615", Default: "0", Scope: Agents,
		Doc: "Chooses the links that are replaced.",
	},
	{
		Path: "neighbours.ring.delay", Kind: Ticks, Min: "1", Max: "32", Scope: Agents,
		Doc: "Ticks that a spike of `lif` and `izhikevich` takes over a link: the least and the most, as in " +
			"`[1, 8]`, and each link has one of them by `seed`; or a number for all links. Without it, a spike " +
			"arrives in the next tick.",
	},
	{
		Path: "neighbours.graph", Kind: Text, Scope: Agents,
		Doc: "File of edges, in the folder of the specification or below: a line `from,to` for each, or " +
			"`from,to,weight`, or `from,to,weight,delay`. Weights of `sir` are from 0 to 1, and the chance of " +
			"an infection is multiplied by them; " +
			"weights of `lif` are added to potentials, and of `izhikevich` to inputs. Delays are of spikes, in " +
			"whole ticks, 1 to 32. Agents count from 0. A " +
			"graph of more than some 150,000 edges " +
			"goes through the place of snapshots: see `exoswarm swarm create --snapshots`. It has at most 33,554,432 " +
			"edges.",
	},
	{
		Path: "neighbours.directed", Kind: Boolean, Default: "false", Scope: Agents,
		Doc: "Whether `to` alone hears `from` over an edge of `neighbours.graph`. Otherwise both hear each other.",
	},

	{Path: "vote", Kind: Section, Doc: "What the agents of a group decide, and by which rule."},
	{
		Path: "vote.candidates", Kind: Texts, Min: "2", Max: "16",
		Doc: "Names of what agents vote for, in the order of the cell. Default: the names of the cell, such as " +
			"`[normal, suspicious, anomalous]`. A `gru` under `addressed: agent` and a custom cell have none of " +
			"their own, but for `[zero, set]` of a custom cell under `addressed: agent`. Of `transformer` they are " +
			"texts, and the default is `[yes, no]`. `none` is reserved.",
	},
	{
		Path: "vote.tokens", Kind: Tokens, Min: "0", Max: "2147483647", Scope: Language,
		Doc: "First token of each candidate. An agent votes for the candidate whose token is the likeliest. " +
			"`exoswarm swarm create --snapshots` fills it in; without it the agents do not vote.",
	},
	{
		Path: "vote.by", Kind: Text, Scope: Lattice,
		Doc: "Variable by which agents vote: for candidate c if it is c, and for the last one if it is more. A float " +
			"has two candidates, 0 and all else. A tick counts the votes. Default: the first variable in " +
			"alphabetical order.",
	},
	{
		Path: "vote.rule", Kind: Text, Values: []string{"plurality", "majority", "quorum", "weighted", "unanimous"},
		Default: "weighted",
		Doc: "`plurality`: most votes. `majority`: more than half. `quorum`: the share `vote.quorum`. `weighted`: " +
			"a vote weighs 1 to 8 times, more for agents whose predictions err less. `unanimous`: all. Under " +
			"`addressed: agent` the default is plurality, and weighted is not valid.",
	},
	{
		Path: "vote.quorum", Kind: Number, Min: "0", Max: "1",
		Doc: "Share of all weight that the winner needs, above 0. For the rule quorum, which requires it.",
	},

	{
		Path: "hear", Kind: Texts, Scope: Agents,
		Doc: "Inputs of each step that all agents hear, behind the features: `decision`, the candidate that has won " +
			"the last `swarm vote`, and `leader`, the candidate that its leader votes for: the same if the leader is " +
			"elected, as it is by default. In ticks also `group`, " +
			"the candidate that the group of the agent has decided for in the step before, and " +
			"`knowledge`, its knowledge node, which `knowledge.by` chooses. Candidate c of n, from 0 on, is " +
			"(c+1)/n; 0 is none. For the cell `gru`.",
	},
	{
		Path: "knowledge", Kind: Section, Scope: Agents,
		Doc: "Knowledge nodes, for `hear: [knowledge]`. Before each step of a tick, a node merges the units of its " +
			"agents that have stepped, and all its agents hear it in that step. `swarm learn` merges values of " +
			"yours, and the next tick has agents hear the node as it is then.",
	},
	{
		Path: "knowledge.by", Kind: Text, Values: []string{"group", "vote", "key"}, Default: "group", Scope: Agents,
		Doc: "Which node an agent hears, and adds its units to: `group`, the node of its group; `vote`, the node of " +
			"the candidate that it votes for, and 0 without a vote; `key`, the node of its id modulo " +
			"`knowledge.nodes`. With a group for each entity and an agent for each of its N sensors, N nodes by " +
			"`key` are of one sensor of all entities each. By `vote` and `key` nodes have agents of all shards, " +
			"whose sums a tick merges, and each shard has as many groups as nodes or more.",
	},
	{
		Path: "knowledge.nodes", Kind: Integer, Min: "1", Scope: Agents,
		Doc: "Number of nodes, no more than groups. By `group` each is of a run of whole groups, which differ by " +
			"one group at most, and the number is a multiple of `shards`; by default each group has a node. By " +
			"`key` it has no default, and by `vote` it is left out.",
	},
	{
		Path: "knowledge.units", Kind: Integer, Min: "1", Max: "8", Default: "1", Scope: Agents,
		Doc: "Units of a node, which are the first of each agent. Features, and all that is heard, have room in the " +
			"padded units of the cell.",
	},
	{
		Path: "knowledge.merge", Kind: Text, Values: []string{"mean", "max", "ema", "attention"}, Default: "mean",
		Scope: Agents,
		Doc: "`mean` or `max` of each unit, or `ema`: the node moves to the mean by `knowledge.rate`. `attention` is " +
			"a mean with weights: an agent that is closer to what it has heard of the node weighs more, by " +
			"`knowledge.focus`. What `swarm learn` has for a node merges likewise; `mean` and `attention` are then " +
			"the mean of the node and the values.",
	},
	{
		Path: "knowledge.focus", Kind: Number, Min: "0", Max: "16", Scope: Agents,
		Doc: "How much the weight of an agent falls with its distance to the node, above 0; by default 1. The weight " +
			"is proportional to exp(focus u n / sqrt(d)), for the d units u of the agent and n of the node, and at " +
			"least 2^-16 of the largest that there may be. For the merge `attention`.",
	},
	{
		Path: "knowledge.rate", Kind: Number, Min: "0", Max: "1", Scope: Agents,
		Doc: "How far an update moves a node to the mean, above 0; by default 0.1. For the merge `ema`.",
	},

	{
		Path: "on_decision", Kind: Texts, Scope: Agents,
		Doc: "Rules about what follows when a round is decided, `WHEN -> ACTION, ACTION`, in their order. WHEN is a " +
			"candidate, `any` winner, `none`, or `changed`: another winner than in the round before. `tick N` steps " +
			"all agents, `reset` returns them to their initial state and keeps the outcome, `emit NAME` stores the " +
			"decision in a stream, which `swarm emitted` lists, and `submit JOB` submits a job of `jobs`. Each is " +
			"done once for a round. For the cells `gru` and `leaky`, in swarms with one shard.",
	},
	{
		Path: "jobs", Kind: Jobs, Max: "16", Scope: Agents,
		Doc: "Jobs that rules submit, by their names: `pool`, `cpu` or `gpu`, `kind`, `spec`, `lane`, `tenant`, " +
			"`max_attempts` and `result_ttl_s` as in `exoswarm submit`. In texts of `spec`, `$(round)`, `$(winner)`, " +
			"`$(leader)` and `$(swarm)` stand for the decision; a text that is `$(decision)` becomes all of it, as " +
			"an object. The id is the name and a number, with the tenant before it. A tenant at its limit of queued " +
			"jobs holds up the vote.",
	},

	{
		Path: "agents_per_group", Kind: Integer, Min: "1", Max: "4096", Default: "256",
		Doc: "Agents that watch one series or entity, or vote together. With `neighbours` it divides the width of " +
			"the " +
			"grid, or the agents of the graph or the box, and the default is the largest that does. Of the cell " +
			"`quantum` the default is the largest up to 256 that divides the agents, and of `transformer` 1.",
	},
	{
		Path: "agents", Kind: Integer, Min: "1", Max: "4294967295", Scope: Agents, Required: true,
		Doc: "Number of agents, a multiple of `agents_per_group`. On a grid it is the number of places, and may be " +
			"left out there and with `neighbours.graph`.",
	},
	{
		Path: "groups", Kind: Integer, Min: "1", Max: "134217728", Scope: Groups,
		Doc: "Number of groups of a lasting swarm, for `swarm create`. A run takes it from its input.",
	},
	{
		Path: "shards", Kind: Integer, Min: "1", Max: "64", Default: "1",
		Doc: "Logs that the groups are split over, at most one for each group or entity. Each is served by one " +
			"agent process at a time, on one device.",
	},
	{
		Path: "devices", Kind: Integer, Min: "1", Max: "8",
		Doc: "The most devices of an agent process that make the ticks of a swarm of the cells `life` and `sir`, and " +
			"of `lif` and `izhikevich` on a graph, together. Where there are fewer, or a tick is short, fewer do: " +
			"states have the same bits. Default: 1.",
	},
	{
		Path: "seed", Kind: Integer, Min: "0", Max: "18446744073709551615", Default: "0",
		Doc: "Chooses the fixed random weights of the agents. The same seed gives the same decisions.",
	},

	{
		Path: "page_size", Kind: Size, Min: "64KiB", Max: "1GiB", Default: "2MiB",
		Doc: "Size of a page of state, a multiple of 4 KiB. A page holds at least one group.",
	},
	{
		Path: "residency", Kind: Text, Values: []string{"gpu"},
		Doc: "`gpu` keeps all pages in the memory of the device; an agent process without room for all of them " +
			"refuses the swarm. Without it, pages that are not needed leave the device for others.",
	},
	{
		Path: "checkpoint", Kind: Section,
		Doc: "When an agent process stores the state of a shard: at the interval, or after the number of entries, " +
			"whichever comes first. Checkpoints take at most a twentieth of the time of the process, so " +
			"checkpoints of a large swarm come less often. They change no output.",
	},
	{
		Path:    "checkpoint.interval",
		Kind:    Duration,
		Min:     "100ms",
		Max:     "1h",
		Default: "5s",
		Doc:     "Longest time between two.",
	},
	{
		Path: "checkpoint.entries", Kind: Integer, Min: "1", Max: "1000000", Default: "1024",
		Doc: "Most entries of the log between two. An entry has up to 4,096 observations.",
	},
	{
		Path: "replicas", Kind: Integer, Values: []string{"1", "3", "5"},
		Doc: "Servers that store each log of the swarm. Default: as many as the streams of the cluster have.",
	},
	{
		Path: "durability", Kind: Text, Values: []string{"synced", "fast"}, Default: "synced",
		Doc: "`synced`: an entry is acknowledged when it is on disk, as the server is configured. `fast`: before; a " +
			"server that is killed may lose entries. `fast` is for one replica.",
	},
}
