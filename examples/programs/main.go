// Program programs writes the arrays of the examples autoencoder.txt and forecaster.txt, windows of
// a series of examples/telemetry, into a folder:
//
//	go run -C examples ./programs /tmp/windows
//
// Values are less the mean and by the deviation of the first ten days, which are trained with. The
// other four days are in the files whose names begin with test.
package main

import (
	"encoding/binary"
	"encoding/csv"
	"errors"
	"fmt"
	"log"
	"math"
	"os"
	"path/filepath"
	"strconv"
)

const (
	series  = "telemetry/data/requests_per_s.csv"
	trained = 10 * 288 // values of ten days, one every five minutes
	wide    = 32       // values of a window of the autoencoder
	past    = 24       // values before the one that is forecast
)

func main() {
	if len(os.Args) != 2 {
		log.Fatal("usage: programs FOLDER")
	}
	if err := write(series, os.Args[1]); err != nil {
		log.Fatal(err)
	}
}

// write writes the arrays of a series into a folder.
func write(from, folder string) error {
	values, err := read(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	for _, part := range []struct {
		prefix string
		values []float64
	}{{"", values[:trained]}, {"test_", values[trained:]}} {
		err = errors.Join(err,
			save(filepath.Join(folder, part.prefix+"x.npy"), windows(part.values, 0, wide), wide),
			save(filepath.Join(folder, part.prefix+"past.npy"), windows(part.values[:len(part.values)-1], 0, past),
				past),
			save(filepath.Join(folder, part.prefix+"next.npy"), windows(part.values, past, 1), 1))
	}
	return err
}

// read returns the values of a file, less the mean and by the deviation of the first ten days.
func read(file string) ([]float64, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return nil, err
	}
	if len(rows) <= trained+wide+1 {
		return nil, fmt.Errorf("%s: %d rows: use more than %d", file, len(rows), trained+wide+1)
	}
	var values []float64
	for _, row := range rows[1:] {
		v, err := strconv.ParseFloat(row[1], 64)
		if err != nil { // a reading that is missing is the one before
			v = values[len(values)-1]
		}
		values = append(values, v)
	}
	mean, square := 0.0, 0.0
	for _, v := range values[:trained] {
		mean += v / trained
		square += v * v / trained
	}
	deviation := math.Sqrt(square - mean*mean)
	for i := range values {
		values[i] = (values[i] - mean) / deviation
	}
	return values, nil
}

// windows returns all windows of a width, which begin with the value at first.
func windows(values []float64, first, width int) (out []float32) {
	for at := first; at+width <= len(values); at++ {
		for _, v := range values[at : at+width] {
			out = append(out, float32(v))
		}
	}
	return out
}

// save writes rows of a width as a file of NumPy.
func save(file string, values []float32, width int) error {
	head := fmt.Sprintf("{'descr': '<f4', 'fortran_order': False, 'shape': (%d, %d), }", len(values)/width, width)
	for (10+len(head)+1)%64 != 0 {
		head += " "
	}
	data := binary.LittleEndian.AppendUint16([]byte("\x93NUMPY\x01\x00"), uint16(len(head)+1))
	data = append(append(data, head...), '\n')
	for _, v := range values {
		data = binary.LittleEndian.AppendUint32(data, math.Float32bits(v))
	}
	return os.WriteFile(file, data, 0o644)
}
