// UnixSockets.java: a socket factory by which pgjdbc connects to a Unix socket; its argument is the socket's path.

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import javax.net.SocketFactory;

public class UnixSockets extends SocketFactory {
    private final UnixDomainSocketAddress address;

    public UnixSockets(String path) {
        address = UnixDomainSocketAddress.of(path);
    }

    @Override
    public Socket createSocket() throws IOException {
        return new Unix(SocketChannel.open(address));
    }

    @Override
    public Socket createSocket(String host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(String host, int port, InetAddress localHost, int localPort) throws IOException {
        return createSocket();
    }

    @Override
    public Socket createSocket(InetAddress host, int port, InetAddress localHost, int localPort) throws IOException {
        return createSocket();
    }

    /** What pgjdbc needs of a socket; the options of TCP mean nothing here. */
    private static final class Unix extends Socket {
        private final SocketChannel channel;

        Unix(SocketChannel channel) {
            this.channel = channel;
        }

        @Override
        public boolean isConnected() {
            return channel.isConnected();
        }

        @Override
        public void connect(SocketAddress to, int timeout) {
        }

        @Override
        public InputStream getInputStream() {
            return Channels.newInputStream(channel);
        }

        @Override
        public OutputStream getOutputStream() {
            return Channels.newOutputStream(channel);
        }

        @Override
        public void close() throws IOException {
            channel.close();
        }

        @Override
        public boolean isClosed() {
            return !channel.isOpen();
        }

        @Override
        public void setTcpNoDelay(boolean on) {
        }

        @Override
        public void setKeepAlive(boolean on) {
        }

        @Override
        public void setSoTimeout(int timeout) {
        }

        @Override
        public int getSoTimeout() {
            return 0;
        }
    }
}
