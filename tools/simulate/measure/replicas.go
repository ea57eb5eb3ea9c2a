package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

const clusterServers = 3

// replicas measures appends to logs with three replicas: three servers on this machine, which agree
// by Raft and each sync each entry. They share the disk and the processors.
func (m *measurement) replicas() (err error) {
	c := &cluster{dir: filepath.Join(m.dir, "cluster")}
	var others []*child
	defer func() {
		for _, p := range others {
			err = errors.Join(err, p.close())
		}
		err = errors.Join(err, c.close())
	}()
	ports, err := freePorts(clusterServers)
	if err != nil {
		return err
	}
	routes := make([]string, clusterServers)
	for i, port := range ports {
		routes[i] = fmt.Sprint("127.0.0.1:", port)
	}
	var urls []string
	for i, port := range ports {
		dir := filepath.Join(c.dir, fmt.Sprint("n", i))
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		p, err := spawn(m.ctx, "server", "-dir", dir, "-name", fmt.Sprint("n", i), "-cluster", fmt.Sprint(port),
			"-routes", strings.Join(routes, ","))
		if err != nil {
			return err
		}
		if urls = append(urls, p.said); i == 0 {
			c.server = p
		} else {
			others = append(others, p)
		}
	}
	ctx, cancel := context.WithTimeout(m.ctx, time.Minute)
	defer cancel()
	for k := range mostStreams {
		o := natsconn.Options{URL: urls[k%clusterServers], Name: "writer", Replicas: clusterServers}
		conn, err := natsq.Connect(ctx, o)
		if err != nil {
			return err
		}
		c.conns = append(c.conns, conn)
	}
	for _, size := range sizes[1:4] {
		all, err := m.logs(c, fmt.Sprint("r", size))
		if err != nil {
			return err
		}
		for _, streams := range []int{1, 4} {
			if err := m.append(c, "raft", all[:streams], size, 1); err != nil {
				return err
			}
		}
	}
	return nil
}

// freePorts returns ports that nobody listens on at the moment.
func freePorts(n int) (ports []int, err error) {
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer func() { _ = l.Close() }() // after all are known, so that they differ
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
