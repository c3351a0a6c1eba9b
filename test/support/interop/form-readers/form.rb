# Reads a multipart form as Rack does, and with it Rails: form.rb FILE CONTENT-TYPE. Prints fields and files as JSON.
require 'json'
require 'rack'

path, type = ARGV
body = File.binread(path)
env = Rack::MockRequest.env_for('/', method: 'POST', input: body, 'CONTENT_TYPE' => type)
fields = []
files = []
Rack::Request.new(env).POST.each do |name, value|
  if value.is_a?(Hash)
    files << [name, value[:filename]]
  else
    fields << [name, value]
  end
end
puts JSON.generate(
  fields: fields.map { |pair| pair.map { |text| text.to_s.dup.force_encoding('UTF-8').scrub } },
  files: files.map { |pair| pair.map { |text| text.to_s.dup.force_encoding('UTF-8').scrub } }
)
