// Package quality measures anomaly detectors on labelled series: how well their scores rank the
// rows of incidents above the others, how well ranges of rows match incidents, and the score of
// NAB.
//
// Scores are from 0 to 1, one a row; a higher score is more anomalous. Windows are the rows of
// incidents, first and last, in order and apart from each other.
package quality

// Probation is the number of rows at the start of a series that do not count: 15 % and at most 750,
// as in NAB.
func Probation(rows int) int { return min(rows*15/100, 750) }
