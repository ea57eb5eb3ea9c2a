package main

import (
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"
)

// random returns bytes that do not compress.
func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

// syncs measures writes of several files at a time, each of which is synced.
func (m *measurement) syncs() error {
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		data := random(size)
		for _, n := range []int{1, 4, 8} {
			files := make([]*os.File, n)
			for k := range files {
				f, err := os.Create(filepath.Join(m.dir, fmt.Sprint("sync", k)))
				if err != nil {
					return err
				}
				files[k] = f
			}
			keys := map[string]float64{"bytes": float64(size)}
			err := m.together("sync", n, keys, func(k, i int) (time.Duration, error) {
				began := time.Now()
				_, err := files[k].WriteAt(data, int64(i%256)*int64(size))
				return time.Since(began), errors.Join(err, files[k].Sync())
			})
			for _, f := range files {
				err = errors.Join(err, f.Close(), os.Remove(f.Name()))
			}
			if err != nil {
				return err
			}
		}
	}
	return nil
}

// flows measures blocks of 1 MiB with their checksums over several TCP connections of this machine.
func (m *measurement) flows() error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer func() { _ = listener.Close() }() // it has no data
	table, data := crc32.MakeTable(crc32.Castagnoli), random(1<<20)
	for _, n := range powers() {
		senders, receivers := make([]net.Conn, n), make([]net.Conn, n)
		for k := range n {
			if senders[k], err = net.Dial("tcp", listener.Addr().String()); err != nil {
				return err
			}
			if receivers[k], err = listener.Accept(); err != nil {
				return err
			}
		}
		received := make(chan error, n)
		for _, c := range receivers {
			go func() {
				block := make([]byte, 1<<20)
				for {
					if _, err := io.ReadFull(c, block); err != nil {
						received <- nil // the sender has closed
						return
					}
					_ = crc32.Checksum(block, table)
				}
			}()
		}
		err := m.together("flow", n, map[string]float64{"bytes": 1 << 20}, func(k, _ int) (time.Duration, error) {
			began := time.Now()
			_ = crc32.Checksum(data, table)
			_, err := senders[k].Write(data)
			return time.Since(began), err
		})
		for k := range n {
			_ = senders[k].Close() // ends the receiver
			<-received
			_ = receivers[k].Close()
		}
		if err != nil {
			return err
		}
	}
	return nil
}
