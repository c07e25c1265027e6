// The heights of the rows of a log, of which only few are ever drawn.

const BLOCK = 256;
const UNKNOWN = 0;

/** Heights of rows in pixels. A row that was not measured yet counts with the estimate. */
export class Heights {
  private rows = new Float32Array(0);
  /** The sum of the known heights and the number of unknown rows, for each block of rows. */
  private sums = new Float64Array(0);
  private unknown = new Int32Array(0);
  length = 0;

  constructor(private estimate: number) {}

  /** Changes the number of rows. New rows have no height yet. */
  resize(length: number): void {
    if (length > this.rows.length) {
      const capacity = Math.ceil((length * 1.5 + BLOCK) / BLOCK) * BLOCK;
      const rows = new Float32Array(capacity);
      rows.set(this.rows);
      this.rows = rows;
    }
    if (length < this.length) this.rows.fill(UNKNOWN, length, this.length);
    this.length = length;
    const blocks = Math.ceil(length / BLOCK);
    this.sums = new Float64Array(blocks);
    this.unknown = new Int32Array(blocks);
    for (let row = 0; row < length; row += 1) {
      const block = Math.floor(row / BLOCK);
      const height = this.rows[row] as number;
      if (height === UNKNOWN) (this.unknown[block] as number)++;
      else (this.sums[block] as number) += height;
    }
  }

  get(row: number): number {
    return this.rows[row] || this.estimate;
  }

  set(row: number, height: number): void {
    if (row >= this.length || height <= 0) return;
    const block = Math.floor(row / BLOCK);
    const before = this.rows[row] as number;
    if (before === UNKNOWN) (this.unknown[block] as number)--;
    (this.sums[block] as number) += height - before;
    this.rows[row] = height;
  }

  private blockHeight(block: number): number {
    return (this.sums[block] as number) + (this.unknown[block] as number) * this.estimate;
  }

  /** Returns the distance of a row from the beginning. */
  top(row: number): number {
    const block = Math.floor(Math.min(row, this.length) / BLOCK);
    let top = 0;
    for (let index = 0; index < block; index += 1) top += this.blockHeight(index);
    for (let index = block * BLOCK; index < Math.min(row, this.length); index += 1) top += this.get(index);
    return top;
  }

  /** Returns the row at a distance from the beginning. */
  rowAt(distance: number): number {
    let left = Math.max(0, distance);
    let block = 0;
    while (block < this.sums.length && left >= this.blockHeight(block)) {
      left -= this.blockHeight(block);
      block += 1;
    }
    let row = block * BLOCK;
    while (row < this.length && left >= this.get(row)) {
      left -= this.get(row);
      row += 1;
    }
    return Math.max(0, Math.min(row, this.length - 1));
  }

  total(): number {
    return this.top(this.length);
  }
}
