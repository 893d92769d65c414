package lookup

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// A local file holds the rows of one data file on local disk, to be found by their keys with two small reads:
//
//	[head, headBytes] [records] [table: blocks of blockBytes]
//
// The table is a hash table: a key belongs to the block that its hash says or, where a block has overflowed, to one of those
// behind it. A slot is 24 bits of the hash and the place of the record. Head, blocks and records each have a checksum, which
// is looked at whenever they are read; a file that is damaged, cut or not of this data file is as good as none. Numbers are
// little-endian.
//
//	head    [magic 8] [CRC-32C of what follows 4] [length of the name 4] [rows 8] [table at 8] [blocks 8] [name]
//	block   [CRC-32C of what follows 4] [slots used 2] [overflowed 2] [slots of 8]
//	record  see recordLayout
const (
	localMagic = "calvelk1"
	headBytes  = 4 << 10
	blockBytes = 512
	blockSlots = (blockBytes - 8) / 8
	// fullSlots is how many slots of a block are used on average: so few that blocks seldom overflow.
	fullSlots = 44
	// tableBytes is how much of the table is made at once; what is left takes another pass over all hashes.
	tableBytes = 32 << 20
	placeBits  = 40
	firstRead  = 256 // of a record, at least: then its length is known
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// errLocal: a local file cannot be used. errMuch: it can, but its records of what was asked for are too large together.
var (
	errLocal = errors.New("local lookup file is not usable")
	errMuch  = errors.New("too many bytes of records at once")
)

// local is an open local file. It is safe for concurrent use.
//
// It is mapped into memory where the system can: a lookup reads two places at random, and two calls would cost it more than
// all the rest. Whoever cuts the file meanwhile makes such a read fault, which read turns into an error; and what is read is
// copied before its checksum is looked at.
type local struct {
	use    sync.RWMutex // held for reading while the map is read; close waits for it
	closed bool
	m      []byte   // nil: not mapped
	f      *os.File // nil: mapped
	path   string
	table  int64
	blocks uint64
	size   int64
	guess  int // bytes of a record to read at once
}

// openLocal opens a file if it is whole and has the name.
func openLocal(path, name string) (_ *local, err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			_ = f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	head := make([]byte, headBytes)
	if _, err := f.ReadAt(head, 0); err != nil {
		return nil, err
	}
	n := int(binary.LittleEndian.Uint32(head[12:]))
	if string(head[:8]) != localMagic || binary.LittleEndian.Uint32(head[8:]) != crc32.Checksum(head[12:], castagnoli) ||
		n > headBytes-40 || string(head[40:40+n]) != name {
		return nil, errLocal
	}
	l := &local{f: f, path: path, size: info.Size()}
	rows := int64(binary.LittleEndian.Uint64(head[16:]))
	l.table, l.blocks = int64(binary.LittleEndian.Uint64(head[24:])), binary.LittleEndian.Uint64(head[32:])
	if l.table < headBytes || l.table > l.size || l.blocks == 0 || l.blocks > uint64(l.size)/blockBytes || rows <= 0 {
		return nil, errLocal
	}
	l.guess = int(min(max((l.table-headBytes)/rows*5/4+32, firstRead), 64<<10))
	if l.m = mapFile(f, l.size); l.m != nil {
		l.f = nil
		_ = f.Close() // it was only read, and is not needed any more
	}
	return l, nil
}

func (l *local) close() error {
	l.use.Lock()
	defer l.use.Unlock()
	if l.closed {
		return nil
	}
	l.closed = true
	if l.f != nil {
		return l.f.Close()
	}
	return unmap(l.m)
}

// read has f call find. A fault of the map is an error.
func (l *local) read(f func() error) (err error) {
	l.use.RLock()
	defer l.use.RUnlock()
	if l.closed {
		return fmt.Errorf("%w: it is closed", errLocal)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if r := recover(); r != nil {
			if _, fault := r.(interface{ Addr() uintptr }); !fault {
				panic(r)
			}
			err = fmt.Errorf("%w: it was cut while it was read", errLocal)
		}
	}()
	return f()
}

// at reads all of p.
func (l *local) at(p []byte, off int64) error {
	if l.m == nil {
		_, err := l.f.ReadAt(p, off)
		return err
	}
	if off < 0 || off > int64(len(l.m)) || copy(p, l.m[off:]) < len(p) {
		return io.ErrUnexpectedEOF
	}
	return nil
}

// hashOf gives the block and the tag of a key.
func hashOf(code []byte, blocks uint64) (block uint64, tag uint64) {
	h := xxhash.Sum64(code)
	return (h >> 32) * blocks >> 32, h & (1<<24 - 1)
}

// find appends the record of a key to dst, or nothing if there is none. It is called within read; buf is scratch of
// blockBytes.
func (l *local) find(dst, buf, code []byte, lay *recordLayout) ([]byte, error) {
	block, tag := hashOf(code, l.blocks)
	for at := l.table + int64(block)*blockBytes; at < l.size; at += blockBytes {
		if err := l.at(buf, at); err != nil {
			return dst, fmt.Errorf("%w: %w", errLocal, err)
		}
		n := int(binary.LittleEndian.Uint16(buf[4:]))
		if binary.LittleEndian.Uint32(buf) != crc32.Checksum(buf[4:], castagnoli) || n > blockSlots {
			return dst, fmt.Errorf("%w: checksum of a block", errLocal)
		}
		for i := range n {
			slot := binary.LittleEndian.Uint64(buf[8+8*i:])
			if slot>>placeBits != tag {
				continue
			}
			from := len(dst)
			var err error
			if dst, err = l.record(dst, int64(slot&(1<<placeBits-1)), lay); err != nil {
				return dst[:from], err
			}
			if bytes.Equal(lay.key(dst[from:]), code) {
				return dst, nil
			}
			dst = dst[:from]
		}
		if buf[6] == 0 {
			return dst, nil
		}
	}
	return dst, fmt.Errorf("%w: the table ends early", errLocal)
}

// record appends a record.
func (l *local) record(dst []byte, at int64, lay *recordLayout) ([]byte, error) {
	from := len(dst)
	n := int(min(int64(l.guess), l.table-at))
	if at < headBytes || n < lay.least {
		return dst, fmt.Errorf("%w: a record at %d", errLocal, at)
	}
	dst = grow(dst, n)
	if err := l.at(dst[from:], at); err != nil {
		return dst, fmt.Errorf("%w: %w", errLocal, err)
	}
	size := int64(binary.LittleEndian.Uint32(dst[from+4:]))
	if size < int64(lay.least) || size > l.table-at {
		return dst, fmt.Errorf("%w: a record of %d bytes", errLocal, size)
	}
	if have := int64(n); have < size {
		dst = grow(dst, int(size-have))
		if err := l.at(dst[from+n:], at+have); err != nil {
			return dst, fmt.Errorf("%w: %w", errLocal, err)
		}
	}
	dst = dst[:from+int(size)]
	if r := dst[from:]; binary.LittleEndian.Uint32(r) != crc32.Checksum(r[4:], castagnoli) || !lay.fits(r) {
		return dst, fmt.Errorf("%w: checksum of a record", errLocal)
	}
	return dst, nil
}

func grow(b []byte, n int) []byte {
	if cap(b)-len(b) < n {
		b = append(make([]byte, 0, 2*cap(b)+n), b...)
	}
	return b[:len(b)+n]
}

// localWriter writes a local file under a temporary name.
type localWriter struct {
	f, hashes *os.File // the hashes and places of the records, 16 bytes each
	out, list []byte   // not yet written
	at        int64    // where the next record goes
	limit     int64
	rows      int64
}

// errBudget: the file would be larger than all that there may be.
var errBudget = errors.New("local lookup file exceeds its budget")

func newLocalWriter(dir string, limit int64) (*localWriter, error) {
	f, err := os.CreateTemp(dir, "*"+tempExt)
	if err != nil {
		return nil, err
	}
	w := &localWriter{f: f, at: headBytes, limit: min(limit, 1<<placeBits)}
	if w.hashes, err = os.CreateTemp(dir, "*"+tempExt); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	// It has no name from here on, so that nothing is left of it whatever happens.
	if err := os.Remove(w.hashes.Name()); err != nil {
		return nil, errors.Join(err, w.abort())
	}
	_, err = f.Write(make([]byte, headBytes))
	if err != nil {
		return nil, errors.Join(err, w.abort())
	}
	return w, nil
}

// add writes a record, whose key has a code.
func (w *localWriter) add(record, code []byte) error {
	binary.LittleEndian.PutUint32(record[4:], uint32(len(record)))
	binary.LittleEndian.PutUint32(record, crc32.Checksum(record[4:], castagnoli))
	w.out = append(w.out, record...)
	w.list = binary.LittleEndian.AppendUint64(w.list, xxhash.Sum64(code))
	w.list = binary.LittleEndian.AppendUint64(w.list, uint64(w.at))
	w.rows++
	if w.at += int64(len(record)); w.at+w.rows*blockBytes/fullSlots > w.limit || w.at >= 1<<placeBits {
		return errBudget
	}
	if len(w.out) < 1<<20 {
		return nil
	}
	return w.flush()
}

// size is what the file and its hashes take on disk when it ends here.
func (w *localWriter) size() int64 { return w.at + (w.rows/fullSlots+2)*blockBytes + 16*w.rows }

func (w *localWriter) flush() error {
	_, err := w.f.Write(w.out)
	if err == nil {
		_, err = w.hashes.Write(w.list)
	}
	w.out, w.list = w.out[:0], w.list[:0]
	return err
}

// end writes table and head and gives the file its name.
func (w *localWriter) end(path, name string) error {
	if w.rows == 0 || len(name) > headBytes-40 {
		return errLocal
	}
	if err := w.flush(); err != nil {
		return err
	}
	blocks := uint64(w.rows)/fullSlots + 1
	if blocks > math.MaxUint32 {
		return errBudget
	}
	if err := w.writeTable(blocks); err != nil {
		return err
	}
	head := make([]byte, headBytes)
	copy(head, localMagic)
	binary.LittleEndian.PutUint32(head[12:], uint32(len(name)))
	binary.LittleEndian.PutUint64(head[16:], uint64(w.rows))
	binary.LittleEndian.PutUint64(head[24:], uint64(w.at))
	binary.LittleEndian.PutUint64(head[32:], blocks)
	copy(head[40:], name)
	binary.LittleEndian.PutUint32(head[8:], crc32.Checksum(head[12:], castagnoli))
	if _, err := w.f.WriteAt(head, 0); err != nil {
		return err
	}
	tmp := w.f.Name()
	if err := errors.Join(w.f.Close(), w.hashes.Close()); err != nil {
		return errors.Join(err, os.Remove(tmp))
	}
	return os.Rename(tmp, path)
}

// writeTable writes the blocks, some of them at a time. What does not fit a block goes to the next.
func (w *localWriter) writeTable(blocks uint64) error {
	const atOnce = tableBytes / blockBytes
	out := make([]byte, min(blocks, atOnce)*blockBytes)
	used := make([]int, len(out)/blockBytes)
	put := func(i uint64, slot uint64) {
		binary.LittleEndian.PutUint64(out[i*blockBytes+8+8*uint64(used[i]):], slot)
		used[i]++
	}
	var over []uint64 // slots for the next block
	for first := uint64(0); first < blocks || len(over) > 0; first += atOnce {
		n := uint64(1) // behind the last one: what overflowed it
		if first < blocks {
			n = min(atOnce, blocks-first)
		}
		clear(out)
		clear(used)
		more := map[uint64][]uint64{} // by block: slots that it has no room for
		if first < blocks {
			if err := w.eachHash(func(hash, place uint64) {
				i, slot := (hash>>32)*blocks>>32-first, hash&(1<<24-1)<<placeBits|place
				switch {
				case i >= n: // also if it is below first
				case used[i] < blockSlots:
					put(i, slot)
				default:
					more[i] = append(more[i], slot)
				}
			}); err != nil {
				return err
			}
		}
		for i := range n {
			for over = append(over, more[i]...); len(over) > 0 && used[i] < blockSlots; over = over[1:] {
				put(i, over[0])
			}
			b := out[i*blockBytes:][:blockBytes]
			if len(over) > 0 {
				b[6] = 1
			}
			binary.LittleEndian.PutUint16(b[4:], uint16(used[i]))
			binary.LittleEndian.PutUint32(b, crc32.Checksum(b[4:], castagnoli))
		}
		if _, err := w.f.Write(out[:n*blockBytes]); err != nil {
			return err
		}
	}
	return nil
}

// eachHash gives the hashes and places of all records.
func (w *localWriter) eachHash(f func(hash, place uint64)) error {
	buf := make([]byte, 1<<20)
	for at := int64(0); at < w.rows*16; {
		n, err := w.hashes.ReadAt(buf[:min(int64(len(buf)), w.rows*16-at)], at)
		if err != nil && !errors.Is(err, io.EOF) || n == 0 {
			return fmt.Errorf("read back %d hashes: %w", w.rows, err)
		}
		for b := buf[:n]; len(b) >= 16; b = b[16:] {
			f(binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]))
		}
		at += int64(n)
	}
	return nil
}

// abort drops the file.
func (w *localWriter) abort() error {
	err := errors.Join(w.f.Close(), os.Remove(w.f.Name()))
	if w.hashes != nil {
		err = errors.Join(err, w.hashes.Close())
	}
	return err
}

// Extensions of files in the folder.
const (
	localExt = ".lookup"
	tempExt  = ".lookup-tmp"
)

func localPath(dir, fingerprint string) string { return filepath.Join(dir, fingerprint+localExt) }
