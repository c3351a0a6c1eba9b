import { once } from 'node:events';
import { connect, type Socket } from 'node:net';
import { MAX_RESPONSE_BYTES, type ScannerAddress, ScannerFault } from './scanner.ts';

/** A connection to a scanner. Reading is bounded; the deadline of `withConnection` ends everything. */
export type ScannerConnection = ReturnType<typeof createScannerConnection>;

/** Opens a connection, and closes it whatever happens. The error is that of the deadline if it has passed. */
export async function withConnection<T>(
  address: ScannerAddress,
  signal: AbortSignal,
  work: (connection: ScannerConnection) => Promise<T>,
): Promise<T> {
  signal.throwIfAborted();
  // A milter answers each step: waiting for its acknowledgement would take 40 ms a step.
  const socket = connect({ ...address, noDelay: true });
  const abort = () => socket.destroy(toError(signal.reason));
  signal.addEventListener('abort', abort, { once: true });
  const connection = createScannerConnection(socket);
  try {
    await once(socket, 'connect');
    return await work(connection);
  } catch (error) {
    throw signal.aborted ? toError(signal.reason) : error;
  } finally {
    signal.removeEventListener('abort', abort);
    socket.destroy();
  }
}

const toError = (reason: unknown): Error => (reason instanceof Error ? reason : new ScannerFault(String(reason)));

function createScannerConnection(socket: Socket) {
  let held: Buffer[] = [];
  let length = 0;
  let total = 0;
  let ended = false;
  let fault: Error | undefined;
  let wake = (): void => {};
  const close = () => {
    ended = true;
    wake();
  };
  socket.on('data', (chunk: Buffer) => {
    total += chunk.length;
    if (total > MAX_RESPONSE_BYTES) {
      socket.destroy(new ScannerFault(`it answered more than ${MAX_RESPONSE_BYTES} bytes`));
      return;
    }
    held.push(chunk);
    length += chunk.length;
    wake();
  });
  socket.on('end', close);
  socket.on('close', close);
  socket.on('drain', () => wake());
  socket.on('error', (error) => {
    fault = error;
    wake();
  });
  const isOver = () => ended || fault !== undefined;
  /** Waits for the next event on the connection. */
  const next = () =>
    new Promise<void>((resolve) => {
      wake = resolve;
    });
  const taken = (size: number): Buffer => {
    const all = Buffer.concat(held);
    held = size < all.length ? [all.subarray(size)] : [];
    length -= size;
    return all.subarray(0, size);
  };

  return {
    /** Resolves once there is room for more. */
    async write(bytes: Uint8Array) {
      if (fault) throw fault;
      if (socket.write(bytes)) return;
      while (socket.writableNeedDrain && !isOver()) await next();
      if (fault) throw fault;
    },
    /** Returns exactly `length` bytes. */
    async read(size: number): Promise<Buffer> {
      while (length < size && !isOver()) await next();
      if (length >= size) return taken(size);
      throw fault ?? new ScannerFault('it closed the connection in the middle');
    },
    /** Returns everything until the scanner closes the connection. */
    async readAll(): Promise<Buffer> {
      while (!isOver()) await next();
      // A scanner that answers early and closes the connection resets it: its answer counts.
      if (fault && (length === 0 || fault instanceof ScannerFault)) throw fault;
      return taken(length);
    },
    /** Whether the scanner has begun to answer, or has closed the connection. */
    answered: (): boolean => length > 0 || isOver(),
  };
}

/**
 * Sends a request and returns the whole answer, for protocols in which the scanner closes the connection after it. A
 * scanner that answers before it has read everything gets no more.
 */
export function exchange(
  address: ScannerAddress,
  signal: AbortSignal,
  request: AsyncIterable<Uint8Array>,
): Promise<Buffer> {
  return withConnection(address, signal, async (connection) => {
    try {
      for await (const bytes of request) {
        if (connection.answered()) break;
        await connection.write(bytes);
      }
    } catch (error) {
      // It may have answered before it closed the connection.
      if (!connection.answered()) throw error;
    }
    return connection.readAll();
  });
}
