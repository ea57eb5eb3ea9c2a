package dialect

import (
	"errors"
	"regexp"
	"strconv"
	"strings"
)

// ErrForm is the error of a text that only a programming language takes for a number.
var ErrForm = errors.New("it is not written with decimal digits")

// Float is strconv.ParseFloat of a number as people write it in files, flags and specifications. It
// refuses underscores and hexadecimal digits, which Go accepts: 1_000 and 0x1p4. It accepts leading
// zeros, and the words for infinity and NaN.
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
