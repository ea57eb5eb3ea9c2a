package pagestore

import "sync"

// Quota is a number of bytes on one medium that the directories of several stores share: bytes that
// one does not use are free for the others. A nil Quota is unlimited. Its methods may be called
// from several goroutines.
type Quota struct {
	mu       sync.Mutex
	capacity int64
	used     int64
}

// NewQuota returns a quota of capacity bytes.
func NewQuota(capacity int64) *Quota { return &Quota{capacity: capacity} }

// Capacity returns the bytes of the quota, used or not.
func (q *Quota) Capacity() int64 { return q.capacity }

// Used returns how many bytes are taken. It may exceed the capacity: files that were on the medium
// when a directory was opened count, whatever the capacity is now.
func (q *Quota) Used() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used
}

// Hold takes bytes that are on the medium whether there is room for them or not; Give gives them
// back.
func (q *Quota) Hold(n int64) {
	if q == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.used += n
}

// Give gives bytes back.
func (q *Quota) Give(n int64) { q.Hold(-n) }

// take takes n bytes if that many are left, and reports whether they were.
func (q *Quota) take(n int64) bool {
	if q == nil {
		return true
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if n > q.capacity-q.used {
		return false
	}
	q.used += n
	return true
}

// left returns the smaller of room and the bytes that are left, which may be negative.
func (q *Quota) left(room int64) int64 {
	if q == nil {
		return room
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return min(room, q.capacity-q.used)
}

// short reports whether more than three quarters are taken. Empty files are then better given back
// than kept for the next records.
func (q *Quota) short() bool {
	if q == nil {
		return false
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.used > q.capacity/4*3
}

// Fill returns the part of the quota that is in use, 0 to 1, for a directory with usage u: its own
// free slots are room, free slots of other directories are not.
func (q *Quota) Fill(u Usage) float64 {
	if q == nil {
		return 0
	}
	if q.capacity <= 0 {
		return 1
	}
	return max(0, min(float64(q.Used()-u.FileBytes+u.SlotBytes)/float64(q.capacity), 1))
}
