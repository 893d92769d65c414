package datafile

import (
	"encoding/binary"
	"hash/crc32"
)

// Dictionaries of copied pages. A row group has one dictionary for each column; pages that come from another row group refer to
// another. The first that comes is kept as it is. When values are added to it, or pages of a third row group come, it is
// loaded into the dictWriter, and pages get the numbers that their values have there.

// dictID names the dictionaries of a row group of a file.
type dictID struct {
	o     *Outline
	group int
}

// keptDict is the dictionary page of a copied chunk as it goes into the file.
type keptDict struct {
	page []byte // nil: none
	full int    // bytes with the header, uncompressed
}

// joinedDict is a dictionary whose entries get other numbers.
type joinedDict struct {
	of    dictID
	body  []byte // PLAIN
	off   []uint32
	table []int32 // new numbers, -1: none yet
}

// hasDict reports whether there is a dictionary in the column chunk being filled.
func (e *columnEncoder) hasDict() bool { return e.kept.page != nil || e.dict.n > 0 }

// plainest is the encoding of values that are in no dictionary.
func (e *columnEncoder) plainest() encoding {
	if e.phys == typeInt32 || e.phys == typeInt64 {
		return deltaEncoding
	}
	return plainEncoding
}

// dictWidth is the width of the values of a dictionary that values can be added to, 0 for texts. There are others.
func (e *columnEncoder) dictWidth() (width int, ok bool) {
	switch e.phys {
	case typeByteArray:
		return 0, true
	case typeInt32, typeFloat:
		return 4, true
	case typeInt64, typeDouble:
		return 8, true
	}
	return 0, false
}

// loadDict makes the dictionary that was kept one that values can be added to. It reports false if it cannot be.
func (e *columnEncoder) loadDict() bool {
	if e.kept.page == nil {
		return true
	}
	if _, ok := e.dictWidth(); !ok {
		return false
	}
	h, n, _, err := parseHeader(e.kept.page)
	if err != nil {
		return false
	}
	body := e.kept.page[n:]
	if e.codec != codecNone {
		if body, err = decompress(e.codec, nil, body, int(h.full)); err != nil {
			return false
		}
	}
	j, err := e.parseDict(body, int(h.values))
	if err != nil {
		return false
	}
	for i := range j.table {
		if e.addEntry(j, i) != uint32(i) { // a value is there twice: the pages name both
			e.dict.reset()
			return false
		}
	}
	e.kept = keptDict{}
	return true
}

// parseDict checks that a dictionary has n values.
func (e *columnEncoder) parseDict(body []byte, n int) (*joinedDict, error) {
	width, ok := e.dictWidth()
	if !ok {
		return nil, unsupportedf("a dictionary of values of type %d", e.phys)
	}
	if len(body)/max(width, 4) < n {
		return nil, corruptf("%d values in %d bytes", n, len(body))
	}
	j := &joinedDict{body: body, table: make([]int32, n)}
	for i := range j.table {
		j.table[i] = -1
	}
	if width > 0 {
		return j, nil
	}
	j.off = make([]uint32, n)
	for i, rest := 0, body; i < n; i++ {
		j.off[i] = uint32(len(body) - len(rest))
		var err error
		if _, rest, err = nextText(rest); err != nil {
			return nil, err
		}
	}
	return j, nil
}

// addEntry gives the number of an entry of another dictionary.
func (e *columnEncoder) addEntry(j *joinedDict, i int) uint32 {
	switch width, _ := e.dictWidth(); width {
	case 4:
		return e.dict.number(uint64(binary.LittleEndian.Uint32(j.body[4*i:])), 4)
	case 8:
		return e.dict.number(binary.LittleEndian.Uint64(j.body[8*i:]), 8)
	}
	at := j.off[i]
	n := binary.LittleEndian.Uint32(j.body[at:])
	return e.dict.text(j.body[at+4 : at+4+n])
}

// openDict makes the column chunk ready for pages that refer to the dictionary of the chunk they come from.
func (k *columnCopy) openDict() error {
	if k.indexed {
		return nil
	}
	k.indexed = true
	e, id := k.e, k.dictID()
	if e.hasDict() && e.dictOf == id {
		return nil
	}
	if e.joined != nil && e.joined.of == id {
		k.joined, k.table = e.joined, e.joined.table
		return nil
	}
	size := k.places[0].at - k.offset
	if !k.dict {
		return corruptf("it is not there")
	}
	in := chunkReader{f: k.o.f, step: int(size)}
	in.open(*k.chunk)
	in.end, in.stop = k.places[0].at, k.places[0].at
	h, stored, err := in.page()
	if err != nil {
		return err
	}
	if in.left() != 0 || h.typ != pageDictionary || h.encoding != encPlain && h.encoding != encPlainDict {
		return corruptf("page of type %d, encoding %d and %d bytes where there are %d", h.typ, h.encoding, h.packed, size)
	}
	_, can := e.dictWidth()
	adopt := !e.hasDict() && (!can || size <= k.in.stop-k.in.pos)
	if adopt && k.codec == e.codec {
		head := in.at - len(stored)
		e.kept, e.dictOf = keptDict{page: in.win[:in.at], full: head + int(h.full)}, id
		e.usedDict, e.encodings[h.encoding] = true, true
		return nil
	}
	body, err := new(page).inflate(k.codec, stored, int(h.full))
	if err != nil {
		return err
	}
	if adopt {
		e.dictOf, e.usedDict, e.encodings[encPlain] = id, true, true
		return e.keepDict(body, int(h.values))
	}
	if !e.loadDict() {
		return unsupportedf("two dictionaries of values of type %d", e.phys)
	}
	if e.joined, err = e.parseDict(body, int(h.values)); err != nil {
		return err
	}
	e.joined.of = id
	k.joined, k.table = e.joined, e.joined.table
	return nil
}

// keepDict compresses a dictionary for this file.
func (e *columnEncoder) keepDict(body []byte, n int) error {
	packed := body
	if e.codec != codecNone {
		var err error
		if e.packed, err = e.pack.compress(e.packed, body); err != nil {
			return err
		}
		packed = e.packed
	}
	b := appendPageHeader(nil, len(body), len(packed), crc32.ChecksumIEEE(packed), -n, encPlain)
	e.kept = keptDict{page: append(b, packed...), full: len(b) + len(body)}
	return nil
}

// renumber writes a page of indexes with the numbers that the values have here.
func (k *columnCopy) renumber(h header) error {
	stored, err := k.in.body(h)
	if err != nil {
		return err
	}
	e, p := k.e, &k.page
	known := dictionary{ready: true, n: len(k.table)}
	values, defs, reps, err := p.unpack(k.leaf, k.codec, h, stored)
	if err != nil {
		return err
	}
	if err := p.decode(k.leaf, e.nested(), h, values, defs, reps, &known); err != nil {
		return err
	}
	e.body = e.putLevels(e.body[:0], k.leaf, defs, reps)
	if p.present == 0 { // it needs no dictionary
		e.encodings[encPlain] = true
		return e.store(e.body, int(h.values), encPlain)
	}
	e.idx = e.idx[:0]
	for _, x := range p.idx[:p.present] {
		to := k.table[x]
		if to < 0 {
			to = int32(e.addEntry(k.joined, int(x)))
			k.table[x] = to
		}
		e.idx = append(e.idx, uint32(to))
	}
	w := e.dict.width()
	e.body = appendIndexes(append(e.body, byte(w)), e.idx, w)
	e.idx = e.idx[:0]
	e.usedDict, e.encodings[encRLEDict] = true, true
	return e.store(e.body, int(h.values), encRLEDict)
}
