import { connect } from 'node:net';
import { connect as connectTls } from 'node:tls';

/** The serial number of the certificate that STARTTLS shows; undefined when the session ended before. */
export function serialAt(port: number): Promise<string | undefined> {
  return new Promise((resolve) => {
    const socket = connect(port, '127.0.0.1');
    const steps = ['EHLO client.example\r\n', 'STARTTLS\r\n'];
    socket.on('error', () => {});
    socket.on('close', () => resolve(undefined));
    socket.on('data', (chunk) => {
      if (!/^\d{3} /m.test(chunk.toString())) return;
      const step = steps.shift();
      if (step !== undefined) return void socket.write(step);
      socket.removeAllListeners('data');
      const secure = connectTls({ socket, rejectUnauthorized: false }, () => {
        resolve(secure.getPeerCertificate().serialNumber);
        secure.end('QUIT\r\n').resume(); // who does not read to the end leaves it open
      });
      secure.on('error', () => resolve(undefined));
    });
  });
}
