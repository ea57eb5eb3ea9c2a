// Package graphset has the kernels of swarms whose agents are the nodes of a graph: generated
// links, and ticks of an epidemic and of networks of spiking neurons. Importing it adds them to the
// set of package kernels. Package gpuagents/graph launches them, and cuda/host/twins has their
// twins.
//
// The state of agent id is a byte, in page id/per at byte id%per. The links of an agent follow one
// another in columns, which has the number of the other agent of each link: from offsets[id] to
// offsets[id+1] for agent id or, if degree is not 0, from id*degree to (id+1)*degree.
//
// Chances are words: a draw below the chance is a success. The largest word is the chance 1.
package graphset

import (
	"embed"
	"fmt"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// The names of the kernels.
const (
	// Links makes the links of a generated graph: degree of each agent, 1 or more. Link k of an agent
	// goes to the agent at the distance k/2+1 on the ring of all, ahead if k is even and behind if it
	// is odd, unless a draw below rewire, up to 2^32, replaces it by one to a random other agent.
	// There are 2 agents or more, unless rewire is 0.
	Links = "graph_links"
	// Mark makes bit id%32 of word id/32 of bits 1 if agent id is in the state, and else 0.
	Mark = "graph_mark"
	// SIR makes a tick of an epidemic. An infected agent recovers with the chance recovery. A
	// susceptible one is infected if one of the trials of its links succeeds at an agent whose bit in
	// infected is 1, and at weights of the link, in 2^-16, if weighted is 1. misses[k] is the chance
	// that k+1 trials fail. next gets the bits of those who are infected then. Draws depend on the
	// keys, the tick and the agent. If count is 1, the agents in each state are added to tally. A
	// launch is about the agents from first_id on, a multiple of 128: pages, next and rows are theirs,
	// and infected and columns are about all.
	SIR = "graph_sir"
	// Rounds writes the number of ticks of each group. The word of a group stands at offset of its
	// page, and slots is the groups of a page.
	Rounds = "graph_rounds"
	// List lists the neurons that have spiked. active is a list of neurons in any order, of
	// counts[which]. counts has two lengths, for lists in turns. List, Pick and LIF append neurons
	// to a list whose length is 0 before. Bits beyond the agents are 0.
	List = "graph_list"
	// Push adds the weights of the links of neurons that have spiked to the sums of their targets,
	// and makes counts[1-which] 0. Links without weights have the weight excitation of a neuron
	// below exciting, and inhibition of others. Weights and sums are in 2^-16, and sums wrap. If
	// partial is 1, a row has as many first links as lengths says.
	Push = "graph_push"
	// Send is Push for links with delays: it adds weights to the sums of the tick in which they
	// arrive. sums are slots arrays, stride words from each other, for as many ticks in turns; slot is
	// the next tick's. active has the neurons that have spiked age ticks before the last one. Links
	// whose delay, 1 to slots, is at most age are left out. A delay stands in delays if listed is 1.
	// Else it is at least least, below least plus span: link k of neuron id has word k/32%4 of the
	// block of Philox of the keys with the counter (k/128*32 + k%32, id, 1).
	Send = "graph_send"
	// Recall appends the neurons that have spiked age ticks before the last one to a list, as List
	// does. history is the place in a page of a word for each neuron, whose bit k says that it has
	// spiked k ticks before the last one.
	Recall = "graph_recall"
	// Remember makes the state bit 0 of the history, each bit the next one, and bits outside of
	// keep 0, for the neurons from first_id on.
	Remember = "graph_remember"
	// Pick lists the agents whose bit is 1.
	Pick = "graph_pick"
	// Count counts the links of the rows from 0 on that go to the size agents from low on.
	Count = "graph_count"
	// Split copies the links of the rows from first_row on that go to the size agents from low on:
	// row first_row+i to the place places[i] and behind it, with low less in their columns. If rest
	// is 1, the other links of the row follow from the last one on, in the reverse order. If
	// weighted is 1, links have weights, and if delayed is 1, delays: from delays if listed is 1,
	// else as Send draws them.
	Split = "graph_split"
	// LIF makes a tick of leaky integrate-and-fire neurons. A neuron that is not refractory decays,
	// and adds its current, a draw in [-1, 1) times noise, and its sum. If it reaches the threshold
	// it spikes, is 0, and is refractory for as many ticks as refractory says, up to 255. resting
	// is the place in a page of the ticks that are left, a byte for each neuron. potentials and
	// currents are the places of float32. Sums become 0. A launch is about the neurons from
	// first_id on, a multiple of 128: sums and bits are theirs, pages hold all neurons. If marked
	// is 1, spikes go to bits, and none to active.
	LIF = "graph_lif"
	// Izhikevich makes a tick of neurons of Izhikevich. types has the numbers of the neurons below
	// exciting, and then the numbers of the other neurons. At tick 0 a neuron has the potential c
	// and the recovery b*c. Its input is its current, a draw in [-1, 1) times noise if noisy is 1,
	// and its sum. The potential moves by two half ticks, and then the recovery by a*(b*potential -
	// recovery). If the potential is at Peak, the neuron spikes: it becomes c, and d is added to
	// the recovery. Sums become 0. marked, bits and first_id are as in LIF.
	Izhikevich = "graph_izhikevich"
	// Trace counts the agents in a state, for a picture over ticks. Column of counts, of rows words,
	// has 0 before, and the next of columns becomes 0. Row i has the agents from i*per_row on. There
	// are as many rows as that makes, and two columns or more.
	Trace = "graph_trace"
	// Put writes a variable of 4 bytes of agents.
	Put = "graph_put"
	// Take reads a variable of 4 bytes of agents.
	Take = "graph_take"
)

// Numbers that kernels and their callers agree on.
const (
	Block = 128 // maximum of threads of a block
	Gaps  = 32  // trials that a draw can miss
	Part  = 256 // links of a row that are tried with the same draws
)

// The states of an agent of SIR.
const (
	Susceptible = iota
	Infected
	Recovered
	States // how many there are
)

// Numbers of the neurons of Izhikevich, in mV. The potential after half a tick is from Lowest to
// Peak, at which a neuron spikes. Below Lowest half a tick is not stable: its error grows. Above
// Peak, the recovery of fast spiking neurons would depend on how far a tick is above it.
const (
	Peak   = 30
	Lowest = -112.5
)

// TypeWords is the numbers of a type of neurons of Izhikevich: a, b, c and d of the model, and
// noise.
const TypeWords = 5

// Spike is the state of a neuron that has spiked in the last tick. Other neurons have state 0.
const Spike = 1

//go:embed *.cu *.cuh
var files embed.FS

//go:embed ptx.tar.zst
var ptxFile string

var ptxTexts kernels.Archive

//go:generate go run ../internal/gen graphset Words=put.cu,take.cu Pages=pages,frames,page_bytes,per Agents=pages,frames,page_bytes,per,agents Active=active,counts,which Drawn=least,span,key0,key1 Carried=exciting,excitation,inhibition,partial,lengths Ticked=tick,key0,key1,count,tally,marked,bits,first_id

// PTX is kernels.PTX for the kernels of this package.
func PTX(name string) (text string, ok bool) { return ptxTexts.PTX(ptxFile, name) }

func init() {
	set := kernels.Set{
		Folder: "graphset", Files: files, Params: paramsOf,
		Head: fmt.Sprintf("#define GAPS %du\n#define PART %du\n", Gaps, Part),
	}
	for _, name := range []string{
		Links, Mark, SIR, Rounds, List, Push, Send, Recall, Remember, Pick, Count, Split, LIF, Trace, Put, Take,
		Izhikevich,
	} {
		if name == Izhikevich {
			set.Head += fmt.Sprintf("#define PEAK %.1ff\n#define LOWEST %.1ff\n", float32(Peak), Lowest)
		}
		set.Register(kernels.Source{
			Name: name, File: strings.TrimPrefix(name, "graph_") + ".cu", MaxBlock: Block, WholeWarps: true,
		}, "graph.cuh")
	}
}
