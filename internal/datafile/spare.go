package datafile

// spareChunks are buffers of column chunks, one for each column, of writers that have ended. A busy table writes several
// files a second, and a chunk that grows page by page leaves several times its bytes to the garbage collector.
var spareChunks = make(chan [][]byte, 2)

// spareBytes is the most that the buffers of one writer keep.
const spareBytes = 8 << 20

// takeSpare lets the columns use buffers of a writer that has ended.
func (w *Writer) takeSpare() {
	select {
	case bufs := <-spareChunks:
		for i := range min(len(bufs), len(w.cols)) {
			w.cols[i].data = bufs[i][:0]
		}
	default:
	}
}

// giveSpare leaves the buffers, of which everything is written, to the next writer.
func (w *Writer) giveSpare() {
	n := 0
	for _, e := range w.cols {
		n += cap(e.data)
	}
	if n > spareBytes {
		return
	}
	bufs := make([][]byte, len(w.cols))
	for i, e := range w.cols {
		bufs[i], e.data = e.data, nil
	}
	select {
	case spareChunks <- bufs:
	default:
	}
}
