// Command release makes what a release consists of, in a folder, without a compiler on the machine
// that installs it, and without a container daemon on this one:
//
//	exoswarm-VERSION-OS-ARCH.tar.gz   the programs, manual, completion, licences, SBOM, and deploy/
//	exoswarm_VERSION_ARCH.deb         the same for Debian, with the units of systemd
//	gpuagent-cuda-VERSION-OS-ARCH.tar.gz   the agent with CUDA for this platform, where the toolkit is
//	NAME-VERSION-linux-ARCH.tar       images of the three programs
//	exoswarm-VERSION.tgz              the Helm chart, with the version as its appVersion
//	exoswarm-VERSION-OS-ARCH.spdx.json
//	SHA256SUMS
//
// The same commit makes the same bytes. docs/deploy.md tells how to sign and push a release.
//
//	make release     all platforms
//	make snapshot    this platform, from bin/
package main

import (
	"crypto/sha256"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"
)

var commandNames = []string{"exoswarm", "cpuagent", "gpuagent"}

// platform is a system that programs are built for.
type platform struct{ os, arch string }

func (p platform) String() string { return p.os + "-" + p.arch }

// release is a release that is being made. Paths of the repository are relative: the command runs
// at its root.
type release struct {
	version string    // as git describe prints it
	time    time.Time // of the commit, and of all files
	out     string
}

func main() {
	version := flag.String("version", "", "version, as git describe --tags prints it; required")
	out := flag.String("o", "dist", "folder of the release, which is made anew")
	commands := flag.String("commands", "", "folder with programs for this platform that make build has left")
	on := flag.String("platforms", "linux/amd64,linux/arm64,darwin/arm64", "platforms, separated by commas")
	flag.Parse()
	if err := run(*version, *out, *commands, *on); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(version, out, commands, on string) error {
	if version == "" {
		return errors.New("name the version with -version: make release takes it from git describe")
	}
	at, err := commitTime()
	if err != nil {
		return err
	}
	r := release{version: version, time: at, out: out}
	if err := errors.Join(os.RemoveAll(out), os.MkdirAll(out, 0o755)); err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "exoswarm-release-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(work) }()
	var manual []file
	for name := range strings.SplitSeq(on, ",") {
		system, arch, ok := strings.Cut(name, "/")
		if !ok {
			return fmt.Errorf("platform %q: write OS/ARCH", name)
		}
		p := platform{system, arch}
		dir := commands
		if commands == "" || system != runtime.GOOS || arch != runtime.GOARCH {
			dir = filepath.Join(work, p.String())
			if err := tool("size", "-version", version, "-o", dir, "-os", system, "-arch", arch); err != nil {
				return err
			}
		}
		if manual == nil { // from the first platform that runs here
			if system != runtime.GOOS || arch != runtime.GOARCH {
				return fmt.Errorf("platform %s: name %s/%s first, whose programs print the manual", name, runtime.GOOS,
					runtime.GOARCH)
			}
			if manual, err = manualOf(dir); err != nil {
				return err
			}
		}
		if err := r.platform(p, dir, manual); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	return errors.Join(r.chart(), r.sums())
}

// commitTime returns SOURCE_DATE_EPOCH, or the time of the commit.
func commitTime() (time.Time, error) {
	text := os.Getenv("SOURCE_DATE_EPOCH")
	if text == "" {
		printed, err := exec.Command("git", "log", "-1", "--format=%ct").Output()
		if err != nil {
			return time.Time{}, fmt.Errorf("time of the commit: %w: set SOURCE_DATE_EPOCH outside of a repository", err)
		}
		text = strings.TrimSpace(string(printed))
	}
	seconds, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return time.Time{}, fmt.Errorf("time of the release: %w", err)
	}
	return time.Unix(seconds, 0).UTC(), nil
}

// tool runs a tool of the module tools/ that make has built or that is built now.
func tool(name string, args ...string) error {
	path := filepath.Join("bin", "tools", filepath.Base(name))
	build := exec.Command("go", "build", "-C", "tools", "-o", filepath.Join("..", path), "./"+name)
	if text, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build tools/%s: %w\n%s", name, err, text)
	}
	cmd := exec.Command(path, args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("tools/%s: %w", name, err)
	}
	return nil
}

// platform makes the archive, the SBOM, the package and the images of a platform.
func (r release) platform(p platform, commands string, manual []file) error {
	binaries, papers, err := r.programs(p, commands, commandNames...)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("exoswarm-%s-%s", r.version, p)
	if err := r.archive(name, slices.Concat(binaries, papers, manual)); err != nil {
		return err
	}
	if p.os == runtime.GOOS && p.arch == runtime.GOARCH {
		if err := r.cuda(p, commands); err != nil {
			return err
		}
	}
	if p.os != "linux" {
		return nil
	}
	if err := r.deb(p, binaries, papers, manual); err != nil {
		return err
	}
	images, err := os.MkdirTemp("", "exoswarm-images-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(images) }()
	// An image of gpuagent-cuda depends on the C library of this system: make images makes it.
	static := filepath.Join(images, "static")
	if err := os.CopyFS(static, programsOf(binaries)); err != nil {
		return err
	}
	if err := tool("deploy/container", "-commands", static, "-o", images, "-version", r.version); err != nil {
		return err
	}
	for _, name := range commandNames {
		to := filepath.Join(r.out, fmt.Sprintf("%s-%s-%s.tar", name, r.version, p))
		if err := move(filepath.Join(images, name+".tar"), to); err != nil {
			return err
		}
	}
	return nil
}

// programs reads programs of a folder, and makes what goes with them: licences, SBOM and the papers
// of the repository. The SBOM is a file of the release, too.
func (r release) programs(p platform, commands string, names ...string) (binaries, papers []file, err error) {
	for _, name := range names {
		data, err := os.ReadFile(filepath.Join(commands, name))
		if err != nil {
			return nil, nil, fmt.Errorf("%w: make build makes the programs", err)
		}
		binaries = append(binaries, file{name: name, mode: 0o755, data: data})
	}
	parts, err := partsOf(commands, names...)
	if err != nil {
		return nil, nil, err
	}
	bom, err := r.spdx(p, parts)
	if err != nil {
		return nil, nil, err
	}
	name := fmt.Sprintf("%s-%s-%s.spdx.json", names[0], r.version, p)
	if err := os.WriteFile(filepath.Join(r.out, name), bom, 0o644); err != nil {
		return nil, nil, err
	}
	papers = []file{
		{name: "THIRD-PARTY-LICENSES", mode: 0o644, data: licences(parts)},
		{name: "sbom.spdx.json", mode: 0o644, data: bom},
	}
	for _, name := range []string{"LICENSE", "NOTICE", "SECURITY.md", "CHANGELOG.md", "README.md"} {
		data, err := os.ReadFile(name)
		if err != nil {
			return nil, nil, err
		}
		papers = append(papers, file{name: name, mode: 0o644, data: data})
	}
	return binaries, papers, nil
}

// cudaAgent is the agent with CUDA, which make leaves beside the other programs where the toolkit
// is.
const cudaAgent = "gpuagent-cuda"

// cuda makes the archive of the agent with CUDA. It depends on the C library of this system, so it
// is apart.
func (r release) cuda(p platform, commands string) error {
	if _, err := os.Stat(filepath.Join(commands, cudaAgent)); errors.Is(err, fs.ErrNotExist) {
		fmt.Println(cudaAgent, "is left out: it needs the headers and stubs of CUDA 11.8 (CUDA_STUBS)")
		return nil
	}
	binaries, papers, err := r.programs(p, commands, cudaAgent)
	if err != nil {
		return err
	}
	return r.archive(fmt.Sprintf("%s-%s-%s", cudaAgent, r.version, p), slices.Concat(binaries, papers))
}

func move(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// sums writes SHA256SUMS, as sha256sum -c reads it.
func (r release) sums() error {
	all, err := os.ReadDir(r.out)
	if err != nil {
		return err
	}
	var text strings.Builder
	for _, e := range all {
		data, err := os.ReadFile(filepath.Join(r.out, e.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&text, "%x  %s\n", sha256.Sum256(data), e.Name())
		fmt.Printf("%8.1f MB  %s\n", float64(len(data))/1e6, e.Name())
	}
	return os.WriteFile(filepath.Join(r.out, "SHA256SUMS"), []byte(text.String()), 0o644)
}
