package picture

// The chart library of the report and of the dashboard is uPlot 1.6.32 (MIT, see
// assets/uPlot.LICENSE), unchanged from its npm package.

import _ "embed"

// UPlotJS is the minified script. It defines the global uPlot when a page runs it as a classic
// script. The script calls neither eval nor innerHTML, so a strict content security policy allows
// it.
//
//go:embed assets/uPlot.iife.min.js
var UPlotJS string

// UPlotCSS is the minified style sheet.
//
//go:embed assets/uPlot.min.css
var UPlotCSS string

// UPlotLicense is the text of the license, which every copy of UPlotJS must be accompanied by.
//
//go:embed assets/uPlot.LICENSE
var UPlotLicense string
