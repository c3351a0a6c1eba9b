# A Rails application in one file: Action Mailbox behind WEBrick, as an independent consumer of our posts.
#
# Usage: mailbox.rb PORT INGRESS FOLDER   (port 0: one is chosen; the keys and the password are in the environment)
#
# Prints {"listening": PORT} once it takes requests, then one JSON line for every message that came to a mailbox and
# {"refused": STATUS} for every post that it did not take. Ends when standard input ends.

require "action_controller/railtie"
require "active_record/railtie"
require "active_job/railtie"
require "active_storage/engine"
require "action_mailbox/engine"
require "rack/handler/webrick"
require "webrick"
require "json"
require "digest"

PORT, INGRESS, FOLDER = ARGV[0].to_i, ARGV[1].to_sym, ARGV[2]
SAYING = Mutex.new

def say(value)
  SAYING.synchronize { $stdout.puts(value.to_json); $stdout.flush }
end

class Application < Rails::Application
  config.root = FOLDER
  config.eager_load = false
  # One request at a time. Of two that write at once, SQLite locks one out when its message is stored and not yet routed: Rails
  # answers 500, takes the next attempt for a copy, answers 204 and never routes it.
  config.allow_concurrency = false
  config.secret_key_base = "only for this test" * 4
  config.log_level = :fatal
  config.logger = Logger.new($stderr)
  config.hosts.clear
  config.active_job.queue_adapter = :inline
  config.active_storage.service = :local
  config.active_storage.service_configurations = { "local" => { "service" => "Disk", "root" => "#{FOLDER}/storage" } }
  config.action_mailbox.ingress = INGRESS
  # A message would be deleted after thirty days, by a job that this application has no queue for.
  config.action_mailbox.incinerate = false
end

ENV["DATABASE_URL"] = "sqlite3:#{FOLDER}/mailbox.db"
Application.initialize!

ActiveRecord::Migration.verbose = false
ActiveRecord::Schema.define do
  create_table :active_storage_blobs do |t|
    t.string :key, null: false
    t.string :filename, null: false
    t.string :content_type
    t.text :metadata
    t.string :service_name, null: false
    t.bigint :byte_size, null: false
    t.string :checksum, null: false
    t.datetime :created_at, null: false
  end
  create_table :active_storage_attachments do |t|
    t.string :name, null: false
    t.references :record, null: false, polymorphic: true, index: false
    t.references :blob, null: false
    t.datetime :created_at, null: false
  end
  create_table :action_mailbox_inbound_emails do |t|
    t.integer :status, default: 0, null: false
    t.string :message_id, null: false
    t.string :message_checksum, null: false
    t.timestamps
    t.index [:message_id, :message_checksum], name: "inbound_emails_uniqueness", unique: true
  end
end

def text_of(part)
  part && part.decoded.encode("UTF-8")
end

class ApplicationMailbox < ActionMailbox::Base
  routing all: :everything
end

class EverythingMailbox < ApplicationMailbox
  def process
    say({
      subject: mail.subject,
      from: mail.from,
      to: mail.to,
      cc: mail.cc,
      bcc: mail.bcc,
      original_to: Array(mail.header["X-Original-To"]).map(&:to_s),
      text: mail.multipart? ? text_of(mail.text_part) : text_of(mail),
      attachments: mail.attachments.map { |one| [one.filename, Digest::SHA256.hexdigest(one.decoded)] },
    })
  end
end

class Statuses
  def initialize(app)
    @app = app
  end

  def call(env)
    # Rails makes a GET of a request that failed, to render its page.
    post = env["REQUEST_METHOD"] == "POST"
    answer = @app.call(env)
    say({ refused: answer[0] }) if post && answer[0] >= 300
    answer
  rescue StandardError => error
    warn error.full_message
    say({ refused: 500 })
    raise
  end
end

server = WEBrick::HTTPServer.new(Port: PORT, BindAddress: "127.0.0.1", AccessLog: [], Logger: WEBrick::Log.new($stderr, WEBrick::Log::FATAL))
server.mount("/", Rack::Handler::WEBrick, Statuses.new(Application))
say({ listening: server.listeners.first.addr[1] })
Thread.new { server.start }
$stdin.read
