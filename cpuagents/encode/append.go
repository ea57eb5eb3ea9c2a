package encode

import (
	"strconv"
	"unicode/utf8"
)

// AppendNumber appends v in the shortest form that parses to the same float. The parameter bits is
// the size of that float: 32 or 64. Small and large numbers have an exponent, at the limits that
// JavaScript uses. v must be finite, as JSON has no other numbers.
func AppendNumber(b []byte, v float64, bits int) []byte {
	if a := max(v, -v); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
	return strconv.AppendFloat(b, v, 'f', -1, bits)
}

// hex has the digits of an escape in JSON.
const hex = "0123456789abcdef"

// AppendJSON appends s as a JSON string (RFC 8259). A byte that is not UTF-8 becomes U+FFFD.
func AppendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // a broken byte becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
