//go:build !amd64

package lanes

// Available reports whether the processor has the instructions of this package.
func Available() bool { return false }

var wide = false

func stepUnits512(*call) { panic("lanes: not on this architecture") }
func stepUnits(*call)    { panic("lanes: not on this architecture") }
func roundUnits(*call)   { panic("lanes: not on this architecture") }
func fixPairs(*call)     { panic("lanes: not on this architecture") }
func choose(*call)       { panic("lanes: not on this architecture") }
func transpose(*call)    { panic("lanes: not on this architecture") }

func stepLeaky(*leakyCall) { panic("lanes: not on this architecture") }

func stepPredictor(*groupCall)     { panic("lanes: not on this architecture") }
func stepPredictor512(*groupCall)  { panic("lanes: not on this architecture") }
func stepLeakyGroup(*groupCall)    { panic("lanes: not on this architecture") }
func stepLeakyGroup512(*groupCall) { panic("lanes: not on this architecture") }
func stepLif(*groupCall)           { panic("lanes: not on this architecture") }
func stepLif512(*groupCall)        { panic("lanes: not on this architecture") }

func densePairs(*pairsCall)   { panic("lanes: not on this architecture") }
func realPairs(*pairsCall)    { panic("lanes: not on this architecture") }
func mixedPairs(*pairsCall)   { panic("lanes: not on this architecture") }
func scale(*pairsCall)        { panic("lanes: not on this architecture") }
func multiply(*pairsCall)     { panic("lanes: not on this architecture") }
func tradeOnes(*pairsCall)    { panic("lanes: not on this architecture") }
func tradeTwos(*pairsCall)    { panic("lanes: not on this architecture") }
func tradeMany(*pairsCall)    { panic("lanes: not on this architecture") }
func exchange(*pairsCall)     { panic("lanes: not on this architecture") }
func pivotPairs(*pairsCall)   { panic("lanes: not on this architecture") }
func addProduct(*productCall) { panic("lanes: not on this architecture") }
func dot(*languageCall)       { panic("lanes: not on this architecture") }
func score(*languageCall)     { panic("lanes: not on this architecture") }
func addScaled(*languageCall) { panic("lanes: not on this architecture") }
