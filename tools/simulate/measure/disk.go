package main

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"
)

func random(n int) []byte {
	r := rand.New(rand.NewPCG(1, uint64(n)))
	data := make([]byte, n)
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	return data
}

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
