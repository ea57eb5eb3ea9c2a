package lanes

import "golang.org/x/sys/cpu"

// Available reports whether the processor has the instructions of this package.
func Available() bool { return cpu.X86.HasAVX2 && cpu.X86.HasFMA }

// wide reports whether the processor has stepUnits512.
var wide = cpu.X86.HasAVX512F && cpu.X86.HasAVX512VL && cpu.X86.HasAVX512VNNI

//go:noescape
func stepUnits(c *call)

//go:noescape
func stepUnits512(c *call)

//go:noescape
func roundUnits(c *call)

//go:noescape
func fixPairs(c *call)

//go:noescape
func choose(c *call)

//go:noescape
func transpose(c *call)

//go:noescape
func stepLeaky(c *leakyCall)

//go:noescape
func stepPredictor(c *groupCall)

//go:noescape
func stepPredictor512(c *groupCall)

//go:noescape
func stepLeakyGroup(c *groupCall)

//go:noescape
func stepLeakyGroup512(c *groupCall)

//go:noescape
func stepLif(c *groupCall)

//go:noescape
func stepLif512(c *groupCall)

//go:noescape
func densePairs(c *pairsCall)

//go:noescape
func realPairs(c *pairsCall)

//go:noescape
func mixedPairs(c *pairsCall)

//go:noescape
func scale(c *pairsCall)

//go:noescape
func multiply(c *pairsCall)

//go:noescape
func tradeOnes(c *pairsCall)

//go:noescape
func tradeTwos(c *pairsCall)

//go:noescape
func tradeMany(c *pairsCall)

//go:noescape
func exchange(c *pairsCall)

//go:noescape
func pivotPairs(c *pairsCall)

//go:noescape
func addProduct(c *productCall)

//go:noescape
func dot(c *languageCall)

//go:noescape
func score(c *languageCall)

//go:noescape
func addScaled(c *languageCall)
