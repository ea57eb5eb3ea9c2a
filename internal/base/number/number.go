// Package number reads numbers as people write them in files, flags and specifications. Package
// strconv takes texts of the Go language too, where 1_000 is a thousand, 0x1p4 is 16, and 010 may be
// 8: these are refused here.
package number

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// ErrForm is the error of a text that only a programming language takes for a number.
var ErrForm = errors.New("it is not written with decimal digits")

// Float is strconv.ParseFloat of a decimal number. It refuses underscores and hexadecimal digits. It
// accepts leading zeros, and the words for infinity and NaN.
func Float(text string, bits int) (float64, error) {
	if strings.ContainsAny(text, "_xX") {
		return 0, ErrForm
	}
	return strconv.ParseFloat(text, bits)
}

// plain is a decimal number without leading zeros.
var plain = regexp.MustCompile(`^[-+]?(0|[1-9][0-9]*)?(\.[0-9]*)?([eE][-+]?[0-9]+)?$`)

// Plain reports whether a number is written with decimal digits and without leading zeros, so that
// nobody takes it for an octal number. It reports true for the words for infinity and NaN.
func Plain(text string) bool {
	switch strings.ToLower(strings.TrimLeft(text, "+-")) {
	case ".inf", ".nan", "inf", "nan", "infinity":
		return true
	}
	return plain.MatchString(text)
}
