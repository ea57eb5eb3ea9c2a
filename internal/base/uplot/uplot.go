// Package uplot holds the chart library of the report and of the dashboard: uPlot 1.6.32 (MIT, see
// assets/uPlot.LICENSE), unchanged from its npm package.
package uplot

import _ "embed"

// JS is the minified script. It defines the global uPlot when a page runs it as a classic script.
// The script calls neither eval nor innerHTML, so a strict content security policy allows it.
//
//go:embed assets/uPlot.iife.min.js
var JS string

// CSS is the minified style sheet.
//
//go:embed assets/uPlot.min.css
var CSS string

// License is the text of the license, which every copy of JS must be accompanied by.
//
//go:embed assets/uPlot.LICENSE
var License string
