// Package tiers is the contract of the five-tier page manager: the errors, the media and the store
// that its parts agree on. It imports the standard library only; what implements it lies in
// sub-packages, each of use alone:
//
//   - pagestore keeps pages durably in directories and commits them in epochs with a caller's note;
//   - pager keeps pages in tiers of frames (device memory, host memory) above a store, and moves
//     them;
//   - gpuframes are frames of device memory and of pinned memory, and framestest holds all frames to
//     their contract;
//   - policy decides what stays, adaptively, and prefetch guesses what comes next;
//   - segment, index and codec are the files, the table and the encodings of a pagestore;
//   - vfs is the seam to the operating system at which tests cut the power and fail calls.
//
// A user whose pages live in memory of its own, and who wants checkpoints only, takes pagestore
// alone:
//
//	s, err := pagestore.Open(pagestore.Options{Tiers: []pagestore.Tier{{Dir: dir, Capacity: 100 << 30}}})
//	// s.Note() says how far the log was applied; s.Pages() and s.Get bring the pages back.
//	err = s.Put(ctx, 0, page, content, tiers.Kind{Elem: 4}) // every dirty page, from several goroutines
//	epoch, err := s.Commit(ctx, note)                       // all of them and the note, or nothing
//
// The promises, each held by tests named in the package that makes it:
//
//   - A page acknowledged as durable survives kill -9 and power loss byte-exact
//     (pagestore: TestCrashAfterEveryCall, TestKill, TestBadgerDamage).
//   - An unacknowledged write is all or nothing (the same; index: TestCommitOfManyTransactions).
//   - A read returns the right bytes or an error, never other bytes (pagestore: TestFlip,
//     TestMisplacedWrites).
//   - EIO, a full disk or one that hangs degrades its own tier only (pagestore: TestFault,
//     TestOpenDegraded; pager: TestBreaker, TestStall, TestBrokenFrames).
//   - Two processes cannot open one store (pagestore: TestOneProcess).
//   - A failed fsync is never retried as if it had worked (pagestore: TestFault,
//     TestSlotsOfAFailedCommitRest).
package tiers
