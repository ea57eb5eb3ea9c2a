package batch

import (
	"fmt"
	"unsafe"
)

func textBytes(v []string) (n int) {
	for _, s := range v {
		n += len(s)
	}
	return n
}

// appendTexts appends a column of texts that repeat: each is stored as the length of what it shares
// with the text before it, and the rest.
func appendTexts(dst []byte, v []string, order permutation) []byte {
	shared, own := make([]uint32, len(v)), make([]uint32, len(v))
	before := ""
	for i := range v {
		s := v[order.row(i)]
		n := 0
		for n < min(len(s), len(before)) && s[n] == before[n] {
			n++
		}
		shared[i], own[i] = uint32(n), uint32(len(s)-n)
		before = s
	}
	dst = appendInts(dst, shared, len(v), nil)
	dst = appendInts(dst, own, len(v), nil)
	for i := range v {
		dst = append(dst, v[order.row(i)][shared[i]:]...)
	}
	return dst
}

// readTexts fills out with a column that appendTexts wrote, and returns the bytes behind it. It
// allocates bytes bytes for all texts.
func readTexts(out []string, bytes int, data []byte, order permutation) (rest []byte, err error) {
	shared, own := make([]uint32, len(out)), make([]uint32, len(out))
	if data, err = readInts(shared, data, nil); err != nil {
		return nil, fmt.Errorf("shared lengths of texts: %w", err)
	}
	if data, err = readInts(own, data, nil); err != nil {
		return nil, fmt.Errorf("own lengths of texts: %w", err)
	}
	all := make([]byte, 0, bytes)
	before := ""
	for i := range out {
		n, m := int(shared[i]), int(own[i])
		if n > len(before) || m > len(data) || n+m > cap(all)-len(all) {
			return nil, fmt.Errorf("%w: text %d has %d bytes of the one before it and %d of its own", errCorrupt, i,
				n, m)
		}
		start := len(all)
		all = append(append(all, before[:n]...), data[:m]...)
		data = data[m:]
		before = unsafe.String(unsafe.SliceData(all[start:]), n+m)
		out[order.row(i)] = before
	}
	if len(all) != bytes {
		return nil, fmt.Errorf("%w: texts of %d bytes, not %d", errCorrupt, len(all), bytes)
	}
	return data, nil
}

// stamp is the form in which a time is written as text. The zero value is no form.
type stamp byte

// Parts of a Stamp. A Stamp of unix time has unix alone, or with milli.
const (
	stampUsed stamp = 1 << iota
	stampUnix       // a number since 1970
	stampT          // T between day and time in place of a space
	stampZ          // Z behind the time
	stampMilli
	stampMicro
	stampNano

	stampFractions = stampMilli | stampMicro | stampNano
)

func (s stamp) valid() bool {
	switch {
	case s&stampUsed == 0 || s > stampUsed|stampUnix|stampT|stampZ|stampFractions:
		return false
	case s&stampUnix != 0:
		return s&^(stampUsed|stampUnix|stampMilli) == 0
	}
	f := s & stampFractions
	return f&(f-1) == 0
}

// stampOf returns the form of a text that writes a time; the zero value if there is none. Other
// texts of the column may have another form, see Matches.
func stampOf(text string) stamp {
	if len(text) < len(day)+1 || text[4] != '-' {
		if len(text) >= 12 {
			return stampUsed | stampUnix | stampMilli
		}
		return stampUsed | stampUnix
	}
	s := stampUsed
	if text[len(day)] == 'T' {
		s |= stampT
	}
	if text[len(text)-1] == 'Z' {
		s |= stampZ
		text = text[:len(text)-1]
	}
	switch len(text) - len(day) - len(" 15:04:05") {
	case 0:
	case 4:
		s |= stampMilli
	case 7:
		s |= stampMicro
	case 10:
		s |= stampNano
	default:
		return 0
	}
	return s
}

const day = "2006-01-02"

const secondsOfDay = 86400

// stampWriter writes times in one form. It keeps the day of the last one. The zero value is ready.
type stampWriter struct {
	day   int64 // days since 1970, plus one
	texts [len(day) + 1]byte
}

// daysOf0 and daysOf10000 are the days since 1970 of the years 0 and 10000, beyond these years the
// text of a year does not have four digits.
const (
	daysOf0     = -719528
	daysOf10000 = 2932897
)

// append appends the text of a time in unix nanoseconds. It returns false for a time without a text
// of the form.
func (w *stampWriter) append(dst []byte, s stamp, ns int64) ([]byte, bool) {
	second, fraction := ns/1e9, ns%1e9
	if fraction < 0 {
		second, fraction = second-1, fraction+1e9
	}
	if s&stampUnix != 0 {
		return appendUnix(dst, s, second, fraction)
	}
	days := second / secondsOfDay
	rest := second % secondsOfDay
	if rest < 0 {
		days, rest = days-1, rest+secondsOfDay
	}
	if w.day != days+1 {
		if days < daysOf0 || days >= daysOf10000 {
			return dst, false
		}
		w.day = days + 1
		year, month, dayOf := civil(days)
		w.texts = [len(day) + 1]byte{0: '-'}
		pair(w.texts[0:], year/100)
		pair(w.texts[2:], year%100)
		w.texts[4], w.texts[7] = '-', '-'
		pair(w.texts[5:], month)
		pair(w.texts[8:], dayOf)
		w.texts[10] = ' '
		if s&stampT != 0 {
			w.texts[10] = 'T'
		}
	}
	dst = append(dst, w.texts[:]...)
	dst = append(dst, "00:00:00"...)
	clock, seconds := dst[len(dst)-8:], int(rest)
	pair(clock, seconds/3600)
	pair(clock[3:], seconds/60%60)
	pair(clock[6:], seconds%60)
	digits, unit := 0, int64(1)
	switch s & stampFractions {
	case stampMilli:
		digits, unit = 3, 1e6
	case stampMicro:
		digits, unit = 6, 1e3
	case stampNano:
		digits = 9
	default:
		unit = 1e9
	}
	if fraction%unit != 0 {
		return dst, false
	}
	if digits > 0 {
		dst = append(dst, ".000000000"[:digits+1]...)
		f := fraction / unit
		for i := range digits {
			dst[len(dst)-1-i] = byte('0' + f%10)
			f /= 10
		}
	}
	if s&stampZ != 0 {
		dst = append(dst, 'Z')
	}
	return dst, true
}

func appendUnix(dst []byte, s stamp, second, fraction int64) ([]byte, bool) {
	n, unit := second, int64(1e9)
	if s&stampMilli != 0 {
		unit = 1e6
		n = second*1000 + fraction/unit
	}
	if fraction%unit != 0 || n < 0 {
		return dst, false
	}
	var digits [20]byte
	at := len(digits)
	for {
		at--
		digits[at] = byte('0' + n%10)
		if n /= 10; n == 0 {
			return append(dst, digits[at:]...), true
		}
	}
}

func pair(dst []byte, n int) { dst[0], dst[1] = byte('0'+n/10), byte('0'+n%10) }

// civil returns the date of a day since 1970, by H. Hinnant's algorithm: years of 365 days and a
// leap day that begin in March, in cycles of 400.
func civil(days int64) (year, month, dayOf int) {
	days += 719468
	era := days / 146097
	if days < 0 {
		era = (days - 146096) / 146097
	}
	doe := days - era*146097
	yoe := (doe - doe/1460 + doe/36524 - doe/146096) / 365
	doy := doe - (365*yoe + yoe/4 - yoe/100)
	mp := (5*doy + 2) / 153
	dayOf = int(doy - (153*mp+2)/5 + 1)
	month = int(mp + 3)
	if month > 12 {
		month -= 12
	}
	year = int(yoe + era*400)
	if month <= 2 {
		year++
	}
	return year, month, dayOf
}

// Matches reports whether the texts are exactly the times, in unix nanoseconds, in one form.
func (s stamp) Matches(texts []string, times []int64) bool {
	if !s.valid() {
		return false
	}
	var w stampWriter
	var room [40]byte
	for i, text := range texts {
		b, ok := w.append(room[:0], s, times[i])
		if !ok || string(b) != text {
			return false
		}
	}
	return true
}

// Write fills out with the texts of times in unix nanoseconds. They have bytes bytes together,
// which Write allocates.
func (s stamp) Write(out []string, times []int64, bytes int) error {
	if !s.valid() {
		return fmt.Errorf("%w: %d is no form of a time", errCorrupt, s)
	}
	var w stampWriter
	all := make([]byte, 0, bytes+64) // the last text may be longer than what is left
	for i, t := range times {
		start := len(all)
		var ok bool
		if all, ok = w.append(all, s, t); !ok || len(all) > bytes {
			return fmt.Errorf("%w: text %d of %d bytes has no place", errCorrupt, i, len(all)-start)
		}
		out[i] = unsafe.String(&all[start], len(all)-start)
	}
	if len(all) != bytes {
		return fmt.Errorf("%w: texts of %d bytes, not %d", errCorrupt, len(all), bytes)
	}
	return nil
}
