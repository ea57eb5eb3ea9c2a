package pages

import (
	"bytes"
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/devicetest/launches"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

const (
	testPage  = 4 << 10
	testPages = 24
)

// openMemory opens memory of testPages pages without a store.
func openMemory(t *testing.T, d device.Device, b *Budget) *Memory {
	t.Helper()
	return openPages(t, d, b, testPages)
}

// openPages opens memory of n pages without a store.
func openPages(t *testing.T, d device.Device, b *Budget, n int) *Memory {
	t.Helper()
	m, err := NewMemory(d, b, 0, testPage, n)
	testkit.NoError(t, "NewMemory", err)
	testkit.Close(t, m)
	testkit.NoError(t, "m.Open", m.Open(t.Context(), nil))
	return m
}

// contentOf is what a test writes to a page.
func contentOf(page int) []byte { return bytes.Repeat([]byte{byte(page + 1)}, testPage) }

// TestMemory: with a frame for each page and with fewer, pages have what was written, others are
// zeros, and a sweep that reads makes no page.
func TestMemory(t *testing.T) {
	d := launches.Host(t)
	for name, b := range map[string]*Budget{
		"resident": nil,
		"paged":    NewBudget(4*testPage, 100*testPage),
	} {
		t.Run(name, func(t *testing.T) {
			m := openMemory(t, d, b)
			if m.Count() != testPages || m.PageBytes() != testPage || m.Resident() != (b == nil) {
				t.Errorf("%d pages of %d bytes, resident %v", m.Count(), m.PageBytes(), m.Resident())
			}
			for page := 0; page < testPages; page += 2 {
				testkit.NoError(t, "m.Write", m.Write(t.Context(), uint64(page), contentOf(page)))
			}
			buf := make([]byte, testPage)
			for page := range testPages {
				testkit.NoError(t, "m.Read", m.Read(t.Context(), uint64(page), buf))
				want := make([]byte, testPage)
				if page%2 == 0 {
					want = contentOf(page)
				}
				if !bytes.Equal(buf, want) || m.Made()[page] != (page%2 == 0) || m.Dirty()[page] != (page%2 == 0) {
					t.Errorf("page %d: other bytes, made %v, dirty %v", page, m.Made()[page], m.Dirty()[page])
				}
			}
			m.Forward()
			var seen []uint64
			sets := m.All()
			err := m.Each(t.Context(), sets, SweepRead, func(i int) error {
				seen = append(seen, sets[i].Pages...)
				return nil
			})
			if err != nil || len(seen) != testPages || !slices.IsSorted(seen) {
				t.Errorf("a sweep of pages %v: %v", seen, err)
			}
			if n := len(slices.DeleteFunc(slices.Clone(m.Made()),
				func(made bool) bool { return !made })); n != testPages/2 {
				t.Errorf("%d pages after a sweep that reads", n)
			}
			if err := m.Reset(t.Context()); err != nil || slices.Contains(m.Made(), true) ||
				slices.Contains(m.Dirty(), true) {
				t.Errorf("a reset leaves pages: %v", err)
			}
		})
	}
}

// TestEach: all pages of a set are on the device while f runs, a set is a page at least, and an
// error or the end of the context ends the sweep.
func TestEach(t *testing.T) {
	m := openMemory(t, launches.Host(t), NewBudget(4*testPage, 100*testPage))
	for range 2 { // forwards and backwards
		sets := m.All()
		pages := 0
		if err := m.Each(t.Context(), sets, Sweep, func(i int) error {
			frames := map[uint32]bool{}
			for _, page := range sets[i].Pages {
				frames[m.Frame(int(page))] = true
			}
			if len(frames) != len(sets[i].Pages) {
				t.Errorf("%d pages in %d frames", len(sets[i].Pages), len(frames))
			}
			pages += len(sets[i].Pages)
			m.MarkDirty(sets[i].Pages)
			return nil
		}); err != nil || pages != testPages || slices.Contains(m.Dirty(), false) {
			t.Errorf("%d pages: %v", pages, err)
		}
	}
	bad := errors.New("bad")
	if err := m.Each(t.Context(), m.All(), Sweep, func(i int) error {
		if i == 2 {
			return bad
		}
		return nil
	}); !errors.Is(err, bad) {
		t.Errorf("m.Each: %v, want %v", err, bad)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := m.Each(ctx, m.All(), Sweep, func(int) error { cancel(bad); return nil }); !errors.Is(err, bad) {
		t.Errorf("m.Each: %v, want %v", err, bad)
	}
}

// TestUnpack: packed pages come back as they were, and take no more than their content.
func TestUnpack(t *testing.T) {
	d := launches.Host(t)
	m := openMemory(t, d, nil)
	for _, page := range []int{3, 7} {
		content := make([]byte, testPage)
		copy(content[300*page:], "content")
		testkit.NoError(t, "m.Write", m.Write(t.Context(), uint64(page), content))
	}
	all, err := m.Pack(t.Context())
	if err != nil || all.Bytes() > testPage {
		t.Fatalf("%d bytes: %v", all.Bytes(), err)
	}
	other := openMemory(t, d, nil)
	testkit.NoError(t, "other.Unpack", other.Unpack(t.Context(), all))
	a, b := make([]byte, testPage), make([]byte, testPage)
	for page := range uint64(testPages) {
		testkit.NoError(t, "joined errors", errors.Join(m.Read(t.Context(), page, a), other.Read(t.Context(), page, b)))
		if !bytes.Equal(a, b) || m.Made()[page] != other.Made()[page] {
			t.Errorf("page %d differs", page)
		}
	}
	if err := other.Unpack(t.Context(), Packed{{page: 1, data: []byte{0x80}}}); err == nil {
		t.Error("a damaged page was unpacked")
	}
}

// TestAudit: claims hold as long as a page stays as it is, and a page that is damaged on the device
// is named.
func TestAudit(t *testing.T) {
	m := openMemory(t, launches.Host(t), nil)
	if n, err := m.Audit(t.Context(), 1); n != 0 || err != nil || m.Claimed() {
		t.Errorf("%d claims of pages that claim nothing: %v", n, err)
	}
	m.Claim()
	testkit.NoError(t, "m.Write", m.Write(t.Context(), 5, contentOf(5)))
	for want := range 2 {
		if n, err := m.Audit(t.Context(), 1); n != want || err != nil {
			t.Errorf("%d claims compared, want %d: %v", n, want, err)
		}
	}
	testkit.NoError(t, "Fill", m.Arena().Fill(int64(m.Frame(5))*testPage, 8, 0xff))
	if _, err := m.Audit(t.Context(), 1); !errors.Is(err, ErrResidency) {
		t.Errorf("a damaged page: %v", err)
	}
	if _, err := m.Audit(t.Context(), 2); err != nil {
		t.Errorf("a page that an entry has changed: %v", err)
	}
}

// TestAuditOfManyPages: an audit takes more pages than it compares at once, and audits that follow
// each other come to each page.
func TestAuditOfManyPages(t *testing.T) {
	const pages = 4 * claimsAtOnce
	m := openPages(t, launches.Host(t), nil, pages)
	m.Claim()
	for page := range uint64(pages) {
		testkit.NoError(t, "m.Write", m.Write(t.Context(), page, contentOf(int(page))))
	}
	most, audits := 0, 0
	for ; most <= claimsAtOnce && audits < 1000; audits++ {
		n, err := m.Audit(t.Context(), 1)
		if err != nil {
			t.Fatalf("audit %d of undamaged pages: %v", audits, err)
		}
		most = max(most, n)
	}
	if most <= claimsAtOnce {
		t.Errorf("%d audits of %d pages compared %d at most, want more than %d", audits, pages, most, claimsAtOnce)
	}
	damaged := pages - 1
	testkit.NoError(t, "Fill", m.Arena().Fill(int64(m.Frame(damaged))*testPage, 8, 0xff))
	for range pages {
		if _, err := m.Audit(t.Context(), 1); errors.Is(err, ErrResidency) {
			return
		}
	}
	t.Errorf("%d audits did not find that page %d is damaged", pages, damaged)
}
