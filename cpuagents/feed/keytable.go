package feed

import "hash/maphash"

// keyTable has keys with their numbers, from 0. One goroutine uses it. The zero value is not ready:
// use newKeyTable.
//
// It is a table with linear probing, at most half full. A slot has 32 bits of the hash of a key and
// its number, so that a lookup of one of a million keys misses the cache three times: the slot, the
// place of the text, and the text. Warm makes these misses for many keys at the same time.
type keyTable struct {
	seed  maphash.Seed
	slots []uint64 // hash<<32 | number+1; 0 for none
	keys  []string // by number
	warm  []uint32 // numbers that the keys of Warm may have
	sink  byte
}

func newKeyTable() *keyTable { return &keyTable{seed: maphash.MakeSeed(), slots: make([]uint64, 64)} }

func (t *keyTable) Len() int { return len(t.keys) }

// Keys returns the keys by number. The caller does not change them. Later calls of Add do not
// change the result.
func (t *keyTable) Keys() []string { return t.keys }

func (t *keyTable) hash(key string) uint32 { return uint32(maphash.String(t.seed, key) >> 32) }

func (t *keyTable) Find(key string) (number int, ok bool) {
	h := t.hash(key)
	mask := uint32(len(t.slots) - 1)
	for at := h & mask; ; at = (at + 1) & mask {
		s := t.slots[at]
		if s == 0 {
			return 0, false
		}
		if uint32(s>>32) != h {
			continue
		}
		if n := uint32(s) - 1; t.keys[n] == key {
			return int(n), true
		}
	}
}

// Add adds a key that Find does not find, and returns its number.
func (t *keyTable) Add(key string) int {
	if 2*(len(t.keys)+1) > len(t.slots) {
		old := t.slots
		t.slots = make([]uint64, 2*len(old))
		for _, s := range old {
			if s != 0 {
				t.put(s)
			}
		}
	}
	t.keys = append(t.keys, key)
	t.put(uint64(t.hash(key))<<32 | uint64(len(t.keys)))
	return len(t.keys) - 1
}

func (t *keyTable) put(s uint64) {
	mask := uint32(len(t.slots) - 1)
	at := uint32(s>>32) & mask
	for t.slots[at] != 0 {
		at = (at + 1) & mask
	}
	t.slots[at] = s
}

// Warm brings what Find needs for some keys into the cache of the processor. Each pass has loads
// that do not depend on one another, so they wait for the memory together.
func (t *keyTable) Warm(keys []string) {
	mask := uint32(len(t.slots) - 1)
	t.warm = t.warm[:0]
	for _, key := range keys {
		if s := t.slots[t.hash(key)&mask]; s != 0 {
			t.warm = append(t.warm, uint32(s)-1)
		}
	}
	for _, n := range t.warm {
		if key := t.keys[n]; len(key) > 0 {
			t.sink += key[0]
		}
	}
}
